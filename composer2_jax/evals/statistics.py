"""Pass rates with honest intervals: cluster bootstrap, unbiased pass@k, paired differences.

Carries out the numbers of the report's figure 5 and section 11. Several tasks come from one source
function, some functions are near twins, and a task has several samples, so episodes are far from
independent: what is resampled is the *group* of twin functions. A task counts
once however many samples it has. May be imported by `evals` and the verbs; numpy only, no jax.

An episode is a record (mapping) with `task_id`, `function`, `reward` and perhaps `group`; reward 1
is a pass.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RESAMPLES = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over `tasks` tasks of `clusters` groups; `interval` is None for a single group."""

    value: float
    interval: tuple[float, float] | None
    tasks: int
    clusters: int

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["interval"] = None if self.interval is None else list(self.interval)
        return record


def cluster_bootstrap(
    values: Sequence[float],
    clusters: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """The mean of `values` with a percentile interval from resampling whole clusters.

    Each resample draws as many clusters as there are, with replacement, and takes the mean of all
    values in them, so a cluster weighs as much as it has values.
    """
    if len(values) != len(clusters) or not values:
        raise ValueError(f"{len(values)} values for {len(clusters)} clusters; need as many, not 0")
    # Sorted names: the interval must not depend on the order in which episodes finished.
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    totals = np.bincount(index, weights=np.asarray(values, np.float64), minlength=len(names))
    sizes = np.bincount(index, minlength=len(names))
    value = float(totals.sum() / sizes.sum())
    if len(names) == 1:
        return Estimate(value, None, len(values), 1)
    draws = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
    means = totals[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, (float(low), float(high)), len(values), len(names))


def unbiased_pass_at_k(samples: int, passes: int, k: int) -> float:
    """P(at least one of k samples passes) estimated from `passes` of `samples` without bias.

    1 - C(n-c, k) / C(n, k): the chance that a random subset of k of the n samples holds a pass.
    """
    if not 0 <= passes <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} from {passes} passes in {samples} samples is not defined")
    return 1.0 - math.comb(samples - passes, k) / math.comb(samples, k)


def task_scores(episodes: Sequence[Mapping[str, Any]], k: int = 1) -> dict[str, tuple[str, float]]:
    """Task id -> (group of functions, pass@k). Tasks with fewer than k samples are left out."""
    passed: dict[str, list[bool]] = defaultdict(list)
    cluster: dict[str, str] = {}
    for episode in episodes:
        task = episode["task_id"]
        passed[task].append(episode["reward"] >= 1.0)
        cluster[task] = episode.get("group") or episode["function"]
    return {
        task: (cluster[task], unbiased_pass_at_k(len(results), sum(results), k))
        for task, results in sorted(passed.items())
        if len(results) >= k
    }


def pass_at_k(
    episodes: Sequence[Mapping[str, Any]], k: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """pass@k (best-of-k of a 0/1 reward) over the tasks that have k samples."""
    functions, scores = zip(*_required(task_scores(episodes, k), k).values(), strict=True)
    return cluster_bootstrap(scores, functions, seed=seed, resamples=resamples)


def mean_pass_rate(
    episodes: Sequence[Mapping[str, Any]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over tasks of the share of samples that pass: pass@1."""
    return pass_at_k(episodes, 1, seed=seed, resamples=resamples)


def paired_difference(
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    *,
    k: int = 1,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Mean over tasks of pass@k after minus pass@k before.

    Both evaluations must hold the same tasks: pairing cancels how hard each function is, which is
    most of the spread between functions, and is wrong as soon as the tasks differ.
    """
    old, new = task_scores(before, k), task_scores(after, k)
    if unpaired := sorted(old.keys() ^ new.keys()):
        raise ValueError(f"{len(unpaired)} tasks are in one evaluation only, such as {unpaired[0]}")
    differences = {task: (new[task][0], new[task][1] - old[task][1]) for task in old}
    functions, gains = zip(*_required(differences, k).values(), strict=True)
    return cluster_bootstrap(gains, functions, seed=seed, resamples=resamples)


def _required(scores: dict[str, tuple[str, float]], k: int) -> dict[str, tuple[str, float]]:
    if not scores:
        raise ValueError(f"no task has {k} samples")
    return scores
