"""What a set of episodes amounts to: pass rate, best-of-4, and how the agent went about it.

These are the numbers that `evaluate` stores and that the run report compares before and after RL
(figure 5 of the technical report, and its length and behaviour measures). A mean is over episodes
unless it says pass rate, which is over tasks. No jax; the verbs and `evals` may import it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from composer2_jax.evals.records import Record, finite
from composer2_jax.evals.statistics import mean_pass_rate, pass_at_k

SAMPLES = 4


def summarize(episodes: Sequence[Record], *, seed: int = 0) -> dict[str, Any]:
    """The summary of an evaluation, JSON-able; {} for no episodes. A number nobody logged is None.

    `first_edit_right` is over the episodes that made an edit, `edits` says how many do.
    """
    if not episodes:
        return {}
    rate = mean_pass_rate(episodes, seed=seed)
    samples = samples_per_task(episodes)
    best = pass_at_k(episodes, SAMPLES, seed=seed) if max(samples.values()) >= SAMPLES else None
    return {
        "pass_rate": rate.value,
        "interval": rate.to_json()["interval"],
        "best_of_4": best.value if best else None,
        "best_of_4_interval": best.to_json()["interval"] if best else None,
        "best_of_4_tasks": best.tasks if best else 0,
        "episodes": len(episodes),
        "tasks": rate.tasks,
        "functions": len({episode["function"] for episode in episodes}),
        "function_groups": rate.clusters,
        "tokens": mean(episodes, "total_tokens"),
        "sampled_tokens": mean(episodes, "sampled_tokens"),
        "turns": mean(episodes, "turns"),
        "seconds": mean(episodes, "seconds"),
        "first_edit_right": mean(episodes, "first_edit_right"),
        "edits": share(episodes, lambda e: e.get("first_edit_right") is not None),
        "tests_run": mean(episodes, "tests_run"),
        "tests": share(episodes, lambda e: (e.get("tests_run") or 0) > 0),
        "finished": mean(episodes, "finished"),
        "invalid_calls": mean(episodes, "invalid_calls"),
        "visible_pass_hidden_fail": share(
            episodes, lambda e: e.get("visible_pass") is True and e["reward"] < 1.0
        ),
        "tool_counts": tool_counts(episodes),
        "by_fault_kind": by_fault_kind(episodes),
    }


def samples_per_task(episodes: Sequence[Record]) -> dict[str, int]:
    """How many episodes each task has."""
    counts: dict[str, int] = defaultdict(int)
    for episode in episodes:
        counts[episode["task_id"]] += 1
    return dict(counts)


def mean(episodes: Sequence[Record], key: str) -> float | None:
    """The mean of a number or of a yes/no over the episodes that have it."""
    raw = [e.get(key) for e in episodes]
    values = [float(v) if isinstance(v, bool) else finite(v) for v in raw]
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def share(episodes: Sequence[Record], holds: Callable[[Record], bool]) -> float:
    """The share of episodes for which `holds`."""
    return sum(map(holds, episodes)) / len(episodes)


def tool_counts(episodes: Sequence[Record]) -> dict[str, float]:
    """Calls of each tool an episode."""
    totals: dict[str, float] = defaultdict(float)
    for episode in episodes:
        for tool, count in (episode.get("tool_counts") or {}).items():
            totals[tool] += count
    return {tool: total / len(episodes) for tool, total in sorted(totals.items())}


def by_fault_kind(episodes: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Pass rate and number of tasks of each kind of fault."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for episode in episodes:
        kinds[episode.get("fault_kind") or "unknown"].append(episode)
    return {
        kind: {
            "pass_rate": mean_pass_rate(members, resamples=1).value,
            "tasks": len(samples_per_task(members)),
        }
        for kind, members in sorted(kinds.items())
    }
