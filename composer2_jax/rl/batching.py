"""From groups to fixed-shape training rows: global packing before each update."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int

from composer2_jax.rl.objective import group_advantages
from composer2_jax.rl.trajectory import Group, Trajectory

Batch = dict[str, Int[np.ndarray, "B T"] | Float[np.ndarray, "B T"]]


def learning_members(groups: Iterable[Group]) -> list[tuple[Trajectory, float]]:
    """Trajectories with a non-zero advantage, and that advantage.

    The others have exactly no gradient under a constant normaliser, so leaving them out changes
    nothing but the time.
    """
    pairs = []
    for group in groups:
        rewards = np.array([member.reward for member in group.members])
        counted = np.array([float(member.counted) for member in group.members])
        advantages = group_advantages(rewards, counted)
        for member, advantage in zip(group.members, advantages, strict=True):
            if advantage != 0.0:
                pairs.append((member, float(advantage)))
    return pairs


def pack_rows(
    members: list[tuple[Trajectory, float]], rows: int, length: int, normalizer: float
) -> list[Batch]:
    """First-fit-decreasing packing into microbatches [rows, length]; at least one, maybe empty.

    `normalizer` is the constant Z of the loss, spread over the microbatches' rows. Raises
    ValueError for a trajectory longer than `length`: cutting it would train on a prefix.
    """
    bins: list[list[tuple[Trajectory, float]]] = []
    space: list[int] = []
    for member, advantage in sorted(members, key=lambda pair: -len(pair[0].tokens)):
        size = len(member.tokens)
        if size > length:
            raise ValueError(f"a trajectory of {size} tokens does not fit rows of {length}")
        place = next((i for i, left in enumerate(space) if left >= size), None)
        if place is None:
            bins.append([])
            space.append(length)
            place = len(bins) - 1
        bins[place].append((member, advantage))
        space[place] -= size
    count = max(-(-len(bins) // rows), 1)
    share = normalizer / (count * rows)
    return [
        _fill(bins[i * rows : (i + 1) * rows], rows, length)
        | {"normalizer": np.full(rows, share, np.float32)}
        for i in range(count)
    ]


def _fill(bins: list[list[tuple[Trajectory, float]]], rows: int, length: int) -> Batch:
    batch: Batch = {
        name: np.zeros((rows, length), np.int32)
        for name in ("tokens", "segment_ids", "positions", "loss_mask")
    }
    for name in ("advantages", "sampler_logprobs"):
        batch[name] = np.zeros((rows, length), np.float32)
    for row, content in enumerate(bins):
        start = 0
        for segment, (member, advantage) in enumerate(content, 1):
            span = slice(start, start + len(member.tokens))
            batch["tokens"][row, span] = member.tokens
            batch["segment_ids"][row, span] = segment
            batch["positions"][row, span] = np.arange(len(member.tokens))
            batch["loss_mask"][row, span] = member.mask
            batch["advantages"][row, span] = advantage
            batch["sampler_logprobs"][row, span] = member.logprobs
            start = span.stop
    return batch
