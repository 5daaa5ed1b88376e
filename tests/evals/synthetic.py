"""A run's work directory with made-up numbers, as the stages would leave it."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HOSTILE = "<script>document.title='owned'</script>"
KINDS = ("comparison", "constant", "operator", "augmented", "boolean", "minmax")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def call(name: str, **arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def assistant(*calls: dict[str, Any], content: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "calls": list(calls)}


def tool(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "calls": []}


def episode(
    task: int, sample: int, passed: bool, *, persistent: bool = True, step: int | None = None
) -> dict[str, Any]:
    """An episode on a file `ranges.py`; a persistent agent tests, undoes and tries again."""
    function = f"clamp_{task // 3}"
    head = f"def {function}(x, low, high):"
    source = f"{head}\n    if x > low:\n        return low\n    return min(x, high)"
    numbered = "\n".join(f"{n}|{line}" for n, line in enumerate(source.split("\n"), start=1))
    messages = [
        {"role": "user", "content": f"{function}(5, 0, 3) is 0 not 3 {HOSTILE}", "calls": []},
        assistant(call("search", query="")),
        tool(f"ranges.py:1|def {function}(x, low, high):"),
        assistant(call("read_file")),
        tool(numbered),
    ]
    tests = 0
    if persistent:
        messages += [
            assistant(call("read_file", line="4|")),
            tool("4|    return min(x, high)"),
            assistant(call("edit_file", old="min", new="max")),
            tool("ok"),
            assistant(call("run_command")),
            tool(f"exit 1\nAssertionError: {HOSTILE}"),
            assistant(call("undo_edit")),
            tool("ok"),
            assistant(call("edit_file", old="y >", new="x <")),
            tool("error: old text not on the focused lines"),
        ]
        tests += 2
    messages += [
        assistant(call("read_file", line="2|")),
        tool("2|    if x > low:"),
        assistant(call("edit_file", old="x > low", new="x < low" if passed else "x > high")),
        tool("ok"),
    ]
    if persistent:
        messages += [assistant(call("run_command")), tool("exit 0" if passed else "exit 1")]
    messages += [assistant(call("finish"), content="" if sample else "Fixed the comparison.")]
    turns = sum(m["role"] == "assistant" for m in messages)
    right = "    if x < low:" if passed else "    if x > high:"
    record = {
        "task_id": f"ranges-{task:03}",
        "function": function,
        "group": function,
        "fault_kind": KINDS[task % len(KINDS)],
        "sample": sample,
        "reward": float(passed),
        "turns": turns,
        "prompt_tokens": 30,
        "sampled_tokens": 3 * turns,
        "total_tokens": 30 + 11 * turns,
        "seconds": 0.2 * turns,
        "tool_counts": {
            "read_file": 3 if persistent else 2,
            "edit_file": 3 if persistent else 1,
            "run_command": tests,
            "undo_edit": int(persistent),
            "search": 1,
        },
        "first_edit_right": passed and not persistent,
        "tests_run": tests,
        "finished": True,
        "visible_pass": passed,
        "messages": messages,
        "diff": f"--- a/ranges.py\n+++ b/ranges.py\n@@ -1,4 +1,4 @@\n {head}\n"
        f"-    if x > low:\n+{right}\n         return low\n     return min(x, high)\n",
    }
    return record if step is None else {**record, "step": step}


def evaluation(
    rate: float, *, tasks: int = 12, samples: int = 4, persistent: bool = True, seed: int = 0
) -> list[dict[str, Any]]:
    """Episodes whose functions differ in how often they are solved, around `rate`."""
    draw = random.Random(seed)
    hardness = {function: draw.uniform(-0.25, 0.25) for function in range(tasks)}
    return [
        episode(t, s, draw.random() < rate + hardness[t // 3], persistent=persistent)
        for t in range(tasks)
        for s in range(samples)
    ]


def make_run(workdir: Path, *, tasks: int = 12, updates: int = 12, steps: int = 30) -> Path:
    """A complete run, with the scripted control."""
    draw = random.Random(1)
    cost = {"wall_seconds": 61.0, "peak_rss_bytes": 3 * 2**30, "starts": 1}
    write_json(workdir / "quickstart.json", {"setup_seconds": 95.0})
    for name in ("tasks", "data"):
        write_json(workdir / name / "done.json", cost)
    for index, name in enumerate(("bulk", "mtp", "long", "sft")):
        losses = [1.2 + 5 * math.exp(-4 * i / steps) + draw.gauss(0, 0.08) for i in range(steps)]
        write_jsonl(
            workdir / name / "metrics.jsonl",
            [{"step": 10 * i, "time": 0.2 * i, "loss": loss} for i, loss in enumerate(losses)],
        )
        write_json(
            workdir / name / "done.json",
            {**cost, "loss": losses[-1], "tokens": 900_000, "wall_seconds": 60.0 * (index + 1)},
        )
    write_json(
        workdir / "bulk" / "done.json",
        {
            **cost,
            "tokens": 2_050_000,
            "loss": 1.4,
            "perplexity_before": 1043.0,
            "perplexity_after": 9.7,
        },
    )
    write_json(workdir / "mtp" / "done.json", {**cost, "tokens": 300_000, "mtp_acceptance": 0.58})
    write_jsonl(
        workdir / "rl" / "metrics.jsonl",
        [
            {
                "step": i,
                "reward_mean": 0.55 - 0.35 * math.exp(-3 * i / updates) + draw.gauss(0, 0.05),
                "mixed_groups": draw.uniform(0.4, 0.8),
                "first_edit_right": draw.uniform(0.2, 0.3),
                "tests_run": draw.uniform(0, 3),
                "finished": draw.uniform(0.5, 1),
                "loss": draw.gauss(0, 0.05),
                "grad_norm": 0.2 + draw.random() / 10,
                "entropy": 0.45 + draw.gauss(0, 0.02),
                "turns": 5 + 10 * i / updates,
                "tokens": 9_000,
                "sampled_tokens": 14 + 24 * i / updates,
                "staleness_mean": draw.random(),
                "staleness_max": draw.randint(1, 3),
                "mismatch_mean": 2e-7 * (1 + draw.random()),
                "mismatch_p99": 3e-6 * (1 + draw.random()),
                "mismatch_max": 4e-5 * (1 + draw.random()),
                "seconds": 3 + 2 * i / updates,
            }
            for i in range(updates)
        ],
    )
    write_jsonl(
        workdir / "rl" / "episodes.jsonl",
        [episode(t, s, s == 0, step=t // 2) for t in range(4) for s in range(2)],
    )
    write_json(workdir / "rl" / "done.json", {**cost, "wall_seconds": 300.0, "tokens": 540_000})
    for name, rate, persistent in (
        ("eval_sft", 0.25, False),
        ("eval_rl", 0.5, True),
        ("eval_scripted", 0.3, True),
    ):
        seed = {"eval_sft": 1, "eval_rl": 2, "eval_scripted": 3}[name]
        rows = evaluation(rate, tasks=tasks, persistent=persistent, seed=seed)
        write_jsonl(workdir / name / "episodes.jsonl", rows)
        write_json(workdir / name / "done.json", cost)
        (workdir / name / "config.gin").write_text("# Macros:\nSEED = 7\n")
    return workdir
