"""Short trajectories and groups for tests of the learner's side."""

import numpy as np

from composer2_jax.rl.trajectory import Group, Trajectory
from tests.sampler.samples import VOCABULARY


def trajectory(
    size: int = 4,
    reward: float = 0.0,
    seed: int = 0,
    counted: bool = True,
    version: int = 0,
    sampled: list[int] | None = None,
) -> Trajectory:
    """`size` random tokens, of which the first is a prompt's unless `sampled` says otherwise."""
    rng = np.random.default_rng(seed)
    mask = [0] + [1] * (size - 1) if sampled is None else sampled
    return Trajectory(
        tokens=tuple(rng.integers(1, VOCABULARY, size).tolist()),
        mask=tuple(mask[:size]),
        logprobs=tuple(-on * float(x) for on, x in zip(mask, rng.random(size), strict=True)),
        versions=tuple(version if on else -1 for on in mask),
        reward=reward,
        components={"correct": reward},
        counted=counted,
        statistics={"turns": float(size), "sampled_tokens": float(sum(mask))},
    )


def group(rewards: list[float | None], place: int = 0, version: int = 0) -> Group:
    """One member a reward; None is an infrastructure failure."""
    members = tuple(
        trajectory(4, reward or 0.0, 10 * place + n, reward is not None, version)
        for n, reward in enumerate(rewards)
    )
    return Group(place, f"task-{place}", members)
