"""Reads what a run left on disk: `done.json`, `metrics.jsonl`, `episodes.jsonl`, `config.gin`.

A run may have been killed at any byte, so a missing file is an empty answer and a line that
was cut is skipped and counted; a `done.json` that is not JSON, which no kill can cause, is a
`UserError`. May be imported by the verbs and by the other files of `evals`; no jax.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer2_jax.files import read_json, write_atomic

Record = Mapping[str, Any]


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSONL file ([] when it is missing), and how many lines were not one.

    A killed writer leaves a cut last line, and one that then goes on appending leaves it in the
    middle; neither may cost the reader the rest of the file, and neither is passed over in silence.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    rows: list[dict[str, Any]] = []
    damaged = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            damaged += 1
    return rows, damaged


@dataclass(frozen=True)
class Stage:
    """One stage directory of a run. `status` is "done", "unfinished" or "not run"."""

    name: str
    status: str
    done: Record = field(default_factory=dict)
    seconds: float | None = None
    peak_rss_bytes: float | None = None
    metrics: Sequence[Record] = ()
    episodes: Sequence[Record] = ()
    damaged_lines: int = 0
    ungraded_episodes: int = 0

    def number(self, key: str) -> float | None:
        """A finite number of `done.json`, or None."""
        return finite(self.done.get(key))

    def curve(self, key: str, x: str = "step") -> tuple[list[float], list[float]]:
        """The logged values of `key` over `x`.

        A stage that resumed from a checkpoint logs some steps twice; the later line counts.
        """
        points: dict[float, float] = {}
        for row in self.metrics:
            at, value = finite(row.get(x)), finite(row.get(key))
            if at is not None and value is not None:
                points[at] = value
        steps = sorted(points)
        return steps, [points[step] for step in steps]


def read_stage(workdir: Path, name: str) -> Stage:
    """Everything that stage `name` of the run in `workdir` left behind."""
    folder = workdir / name
    done = read_json(folder / "done.json")
    cost = done or read_json(folder / "wall.json")
    metrics, damaged_metrics = read_jsonl(folder / "metrics.jsonl")
    rows, damaged_episodes = read_jsonl(folder / "episodes.jsonl")
    # The environment failed, not the agent: such an episode says nothing about it.
    graded = [
        row
        for row in rows
        if finite(row.get("reward")) is not None and row.get("ending") != "infra"
    ]
    # A made folder with nothing in it is a stage that was begun.
    status = "done" if done else "unfinished" if folder.is_dir() else "not run"
    return Stage(
        name=name,
        status=status,
        done=done,
        seconds=finite(cost.get("wall_seconds", cost.get("seconds"))),
        peak_rss_bytes=finite(cost.get("peak_rss_bytes")),
        metrics=metrics,
        episodes=unique_episodes(graded),
        damaged_lines=damaged_metrics + damaged_episodes,
        ungraded_episodes=len(rows) - len(graded),
    )


def unique_episodes(rows: Sequence[Record]) -> list[Record]:
    """One record an episode: a stage that resumed may have written some again; the later counts."""
    latest = {(row.get("step"), row.get("task_id"), row.get("sample")): row for row in rows}
    return list(latest.values())


def read_seed(workdir: Path, stage_names: Sequence[str]) -> int | None:
    """The run's seed: from `quickstart.json`, else the SEED macro of any stage's `config.gin`."""
    seed = read_json(workdir / "quickstart.json").get("seed")
    if isinstance(seed, int):
        return seed
    for name in stage_names:
        path = workdir / name / "config.gin"
        if path.is_file():
            match = re.search(r"^SEED\s*=\s*(\d+)\s*$", path.read_text("utf-8"), re.MULTILINE)
            if match:
                return int(match.group(1))
    return None


def write_page(path: Path, text: str) -> None:
    """Writes a text that may quote an episode, whole or not at all."""
    # A file that was not UTF-8 reaches an episode with lone surrogates, which no encoder takes.
    write_atomic(path, text.encode("utf-8", errors="replace").decode("utf-8"))


def finite(value: Any) -> float | None:
    """`value` as a float when it is a finite number, else None (a bool is not a number here)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
