"""What a run found: its numbers, and the episodes of it that are worth reading.

One number has one source: pass rates are computed from the episodes where they are there, costs
come from what each stage measured of itself. A stage that has not run, or that was killed, says so
and never fails the rest. `numbers` is the content of `report.json`. No jax; `evals.report` may
import it.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from composer2_jax.evals.records import Record, Stage, finite, read_seed, read_stage
from composer2_jax.evals.statistics import paired_difference, task_scores
from composer2_jax.evals.summary import SAMPLES, samples_per_task, summarize, tool_counts
from composer2_jax.files import read_json

STAGES = {
    "tasks": "Faults put into real functions; the scripted solver's transcripts",
    "data": "Corpus, tokenizer, tasks and mixtures; tokens on disk",
    "bulk": "Continued pretraining, the bulk of the tokens",
    "mtp": "Multi-token-prediction head, self-distilled from the main head",
    "long": "Context extension",
    "sft": "Supervised fine-tuning on tool-call transcripts",
    "eval_sft": "Held-out tasks before RL",
    "rl": "Asynchronous policy gradient in coding environments",
    "eval_rl": "Held-out tasks after RL",
    "eval_scripted": "Control: SFT weights in a scripted test, undo, retry wrapper",
}
PACKAGES = ("jax", "jaxlib", "flax", "numpy")


@dataclass(frozen=True)
class Run:
    """A run as its stages left it."""

    workdir: Path
    stages: Mapping[str, Stage]
    setup: Record

    def episodes(self, name: str) -> Sequence[Record]:
        return self.stages[name].episodes


def read_run(workdir: Path) -> Run:
    """Reads every stage of the run in `workdir`."""
    stages = {name: read_stage(workdir, name) for name in STAGES}
    return Run(workdir, stages, read_json(workdir / "quickstart.json"))


def numbers(run: Run) -> dict[str, Any]:
    """Every number of the run, JSON-able. What is not known is None, never left out."""
    stages = {name: _stage_numbers(stage) for name, stage in run.stages.items()}
    stage_seconds = sum(s["seconds"] or 0.0 for s in stages.values())
    setup_seconds = finite(run.setup.get("setup_seconds"))
    # The whole run's own clock also counts starting the stages' processes.
    wall_seconds = finite(run.setup.get("wall_seconds"))
    run_seconds = stage_seconds if wall_seconds is None else wall_seconds
    peaks = [s["peak_rss_bytes"] for s in stages.values()] + [run.setup.get("peak_rss_bytes")]
    return {
        "complete": all(stages[n]["status"] == "done" for n in STAGES if n != "eval_scripted"),
        "seed": read_seed(run.workdir, list(STAGES)),
        "versions": {"python": platform.python_version(), **_versions()},
        "setup_seconds": setup_seconds,
        "stage_seconds": stage_seconds,
        "total_seconds": run_seconds + (setup_seconds or 0.0),
        "peak_rss_bytes": max((peak for peak in peaks if peak), default=None),
        "perplexity_before": run.stages["bulk"].number("perplexity_before"),
        "perplexity_after": _latest(run, "perplexity_after", ("bulk",)),
        "mtp_acceptance": _latest(run, "mtp_acceptance", ("sft", "mtp")),
        "sft": _evaluation(run.stages["eval_sft"]),
        "rl": _evaluation(run.stages["eval_rl"]),
        "control": _evaluation(run.stages["eval_scripted"]),
        "gain": _gain(run, "eval_sft", "eval_rl"),
        "gain_of_control": _gain(run, "eval_sft", "eval_scripted"),
        "gain_over_control": _gain(run, "eval_scripted", "eval_rl"),
        "stages": stages,
    }


def _stage_numbers(stage: Stage) -> dict[str, Any]:
    """Status and cost of a stage, then whatever else it measured."""
    losses = stage.curve("loss")[1]
    loss = stage.number("loss")
    return {
        **{
            k: v for k, v in stage.done.items() if not isinstance(v, float) or finite(v) is not None
        },
        "status": stage.status,
        "seconds": stage.seconds,
        "peak_rss_bytes": stage.peak_rss_bytes,
        "tokens": _stage_tokens(stage),
        "loss": loss if loss is not None else losses[-1] if losses else None,
        "first_loss": losses[0] if losses else None,
        "steps": max(stage.curve("step")[0], default=None),
        "damaged_lines": stage.damaged_lines,
        "ungraded_episodes": stage.ungraded_episodes,
    }


def _stage_tokens(stage: Stage) -> float | None:
    """Tokens that a stage trained on or, where it only ran episodes, that those hold in all.

    Training by RL keeps but one episode of a group to read, so its own count comes first.
    """
    if stage.episodes and not stage.curve("tokens")[1]:
        return sum(finite(e.get("total_tokens")) or 0.0 for e in stage.episodes)
    return stage.number("tokens")


def _evaluation(stage: Stage) -> dict[str, Any] | None:
    """The summary of an evaluation; what its `done.json` says where the episodes are gone."""
    if stage.episodes and stage.status == "done":
        return summarize(stage.episodes)
    if stage.status != "done":
        return None
    keys = ("pass_rate", "interval", "best_of_4", "tokens", "turns", "first_edit_right")
    return {k: stage.done.get(k) for k in (*keys, "tests_run", "finished", "seconds")}


def _gain(run: Run, before: str, after: str) -> dict[str, Any] | None:
    """Paired differences between two evaluations, or the reason why there is none."""
    old, new = run.stages[before], run.stages[after]
    if old.status != "done" or new.status != "done" or not (old.episodes and new.episodes):
        return None
    try:
        gain = {"pass_rate": paired_difference(old.episodes, new.episodes).to_json()}
    except ValueError as error:
        return {"not_paired": str(error)}
    counts = [*samples_per_task(old.episodes).values(), *samples_per_task(new.episodes).values()]
    if min(counts) >= SAMPLES:
        best = paired_difference(old.episodes, new.episodes, k=SAMPLES)
        gain["best_of_4"] = best.to_json()
    return gain


def _latest(run: Run, key: str, names: Sequence[str]) -> float | None:
    found = (run.stages[name].number(key) for name in names)
    return next((value for value in found if value is not None), None)


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


# Episodes that are worth reading


@dataclass(frozen=True)
class Reading:
    """An episode to read, why, and what the same task looked like before RL."""

    title: str
    episode: Record
    before: Record | None = None


def choose_readings(run: Run) -> list[Reading]:
    """Solved after RL, failed after RL, and solved after RL where every SFT sample had failed.

    Of each, the shortest of the episodes that used most of edit, test and undo, so that there is
    something to read; ties go to the smaller task id. No task appears twice while others are left.
    """
    before, after = run.episodes("eval_sft"), run.episodes("eval_rl")
    hopeless = {t for t, (_, score) in task_scores(before).items() if score == 0.0}
    solved = [e for e in after if e["reward"] >= 1.0]
    failed = [e for e in after if e["reward"] < 1.0]
    turned = [e for e in solved if e["task_id"] in hopeless]
    readings: list[Reading] = []
    seen: set[str] = set()
    # The rarest kind chooses first, and is shown last.
    for title, candidates in (
        ("Failed by every SFT sample, solved after RL", turned),
        ("Failed after RL", failed),
        ("Solved after RL", solved),
    ):
        fresh = [e for e in candidates if e["task_id"] not in seen] or candidates
        if not fresh:
            continue
        episode = min(fresh, key=_reading_order)
        seen.add(episode["task_id"])
        same = [e for e in before if e["task_id"] == episode["task_id"]]
        earlier = min(same, key=_reading_order) if same and candidates is turned else None
        readings.append(Reading(title, episode, earlier))
    return readings[::-1]


def _reading_order(episode: Record) -> tuple[Any, ...]:
    used = tool_counts([episode])
    variety = sum(used.get(t, 0) > 0 for t in ("edit_file", "run_command", "undo_edit"))
    size = (episode.get("turns") or 0, episode.get("total_tokens") or 0)
    return (-variety, *size, str(episode["task_id"]), episode.get("sample") or 0)
