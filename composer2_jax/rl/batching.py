"""From groups to fixed-shape training rows: global packing before each update."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int

from composer2_jax.rl.objective import group_advantages
from composer2_jax.rl.trajectory import Group, Trajectory

Batch = dict[str, Int[np.ndarray, "..."] | Float[np.ndarray, "..."]]
Members = list[tuple[Trajectory, float]]  # with their advantages
TARGET_MULTIPLE = 512


def learning_members(groups: Iterable[Group]) -> Members:
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
    members: Members, lengths: tuple[int, ...], tokens: int, normalizer: float, version: int
) -> list[Batch]:
    """Packs trajectories into microbatches of some `tokens` tokens; one, empty, for no members.

    Rows have one of a few `lengths`, so that few programs are compiled and short episodes do not
    pay for long rows: first-fit-decreasing into rows of the shortest length that fits, after the
    space left in longer rows. `normalizer` is the constant Z of the loss, spread over all rows;
    `version` is that of the weights that will be trained, and `stale` how far a token is behind it.
    Raises ValueError for a trajectory longer than the longest row: cutting it would train on a
    prefix.
    """
    bins: dict[int, list[Members]] = {length: [] for length in sorted(lengths, reverse=True)}
    for member, advantage in sorted(members, key=lambda pair: -len(pair[0].tokens)):
        _place(bins, member, advantage)
    sizes = {length: max(tokens // length, 1) for length in bins}
    batches = [
        _fill(rows[i : i + sizes[length]], sizes[length], length, version)
        for length, rows in bins.items()
        for i in range(0, len(rows), sizes[length])
    ] or [_fill([], sizes[min(lengths)], min(lengths), version)]
    total = sum(len(batch["tokens"]) for batch in batches)
    for batch in batches:
        batch["normalizer"] = np.full(len(batch["tokens"]), normalizer / total, np.float32)
    return batches


def _place(bins: dict[int, list[Members]], member: Trajectory, advantage: float) -> None:
    """Puts a trajectory into the first row with room, longest rows first, or opens a row for it."""
    size = len(member.tokens)
    for length, rows in bins.items():
        for row in rows:
            if sum(len(other.tokens) for other, _ in row) + size <= length:
                row.append((member, advantage))
                return
    fitting = [length for length in bins if length >= size]
    if not fitting:
        raise ValueError(f"a trajectory of {size} tokens does not fit rows of {max(bins)}")
    bins[min(fitting)].append([(member, advantage)])


def _fill(bins: list[Members], rows: int, length: int, version: int) -> Batch:
    """One microbatch; `targets` are the flat places of sampled tokens, padded with place 0."""
    batch: Batch = {
        name: np.zeros((rows, length), np.int32)
        for name in ("tokens", "segment_ids", "positions", "loss_mask", "stale")
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
            batch["stale"][row, span] = version - np.asarray(member.versions)
            batch["advantages"][row, span] = advantage
            batch["sampler_logprobs"][row, span] = member.logprobs
            start = span.stop
    places = np.flatnonzero(batch["loss_mask"])
    padded = max(-(-len(places) // TARGET_MULTIPLE), 1) * TARGET_MULTIPLE
    batch["targets"] = np.pad(places, (0, padded - len(places))).astype(np.int32)
    return batch
