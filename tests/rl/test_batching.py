"""Packing keeps each token with its own mask, advantage and log-probability, and loses none."""

import numpy as np
import pytest

from composer2_jax.rl.batching import Batch, learning_members, pack_rows
from tests.rl.samples import group, trajectory

LENGTHS = (2, 6, 3, 9)
ADVANTAGES = (1.0, -1.0, 0.5, -0.5)
MEMBERS = [
    (trajectory(size, seed=size), advantage)
    for size, advantage in zip(LENGTHS, ADVANTAGES, strict=True)
]


def unpacked(batches: list[Batch]) -> list[dict[str, list]]:
    """Each segment's columns, whichever row it was put in."""
    found = []
    for batch in batches:
        for row, ids in enumerate(batch["segment_ids"]):
            for segment in range(1, ids.max() + 1):
                columns = np.flatnonzero(ids == segment)
                assert (np.diff(columns) == 1).all(), "a segment is in pieces"
                found.append(
                    {name: v[row, columns].tolist() for name, v in batch.items() if v.ndim == 2}
                )
    return found


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [((9,), 9), ((9,), 18), ((9,), 40), ((20,), 20), ((11,), 22), ((64,), 200), ((4, 9), 18)],
)
def test_every_token_keeps_what_belongs_to_it(lengths: tuple[int, ...], tokens: int) -> None:
    batches = pack_rows(MEMBERS, lengths, tokens, 8.0, 0)
    for batch in batches:
        rows, length = batch["tokens"].shape
        assert length in lengths and rows == tokens // length
    found = sorted(unpacked(batches), key=lambda columns: len(columns["tokens"]))
    for columns, (member, advantage) in zip(
        found, sorted(MEMBERS, key=lambda pair: len(pair[0].tokens)), strict=True
    ):
        assert columns["tokens"] == list(member.tokens)
        assert columns["loss_mask"] == list(member.mask)
        assert columns["positions"] == list(range(len(member.tokens)))
        assert set(columns["advantages"]) == {advantage}
        np.testing.assert_allclose(columns["sampler_logprobs"], member.logprobs, rtol=1e-6)
    for batch in batches:
        padding = batch["segment_ids"] == 0
        for name in ("tokens", "loss_mask", "advantages", "positions"):
            assert not batch[name][padding].any()
    assert sum(float(batch["normalizer"].sum()) for batch in batches) == pytest.approx(8.0)


def test_short_ones_fill_the_gaps() -> None:
    assert len(pack_rows(MEMBERS, (9,), 9, 1.0, 0)) == 3  # 9, 6 + 3, 2
    assert len(pack_rows(MEMBERS, (20,), 20, 1.0, 0)) == 1
    assert len(pack_rows(MEMBERS, (9,), 18, 1.0, 0)) == 2


def test_short_ones_do_not_pay_for_long_rows() -> None:
    """Nine tokens need the long row; six and two share a short one, three opens another."""
    long, short = pack_rows(MEMBERS, (8, 12), 24, 1.0, 0)
    assert (long["tokens"].shape, short["tokens"].shape) == ((2, 12), (3, 8))
    assert (long["segment_ids"] > 0).sum(axis=1).tolist() == [12, 0]
    assert (short["segment_ids"] > 0).sum(axis=1).tolist() == [8, 0, 0]
    total = sum(float(batch["normalizer"].sum()) for batch in (long, short))
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("sampled", [[0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]])
def test_the_targets_are_the_places_of_the_sampled_tokens(sampled: list[int]) -> None:
    members = [*MEMBERS, (trajectory(6, seed=9, sampled=sampled), 0.25)]
    for batch in pack_rows(members, (9,), 18, 1.0, 0):
        places = batch["targets"]
        trained = np.flatnonzero(batch["loss_mask"])
        assert places[: len(trained)].tolist() == trained.tolist()
        # The rest names a place that is never sampled, so it adds nothing.
        assert not batch["loss_mask"].ravel()[places[len(trained) :]].any()


def test_an_update_with_nothing_to_learn_is_one_empty_microbatch() -> None:
    (batch,) = pack_rows([], (9, 20), 18, 8.0, 0)
    assert batch["tokens"].shape == (2, 9) and not batch["segment_ids"].any()
    assert batch["normalizer"].sum() == pytest.approx(8.0)


def test_a_trajectory_that_does_not_fit_is_refused_and_not_cut() -> None:
    with pytest.raises(ValueError, match="9 tokens does not fit rows of 8"):
        pack_rows(MEMBERS, (4, 8), 8, 1.0, 0)


def test_those_without_an_advantage_are_left_out_with_the_others_unchanged() -> None:
    groups = [group([1.0, 0.0, 0.0, 0.0], 0), group([1.0, 1.0], 1), group([1.0, None, 0.0], 2)]
    pairs = learning_members(groups)
    assert [advantage for _, advantage in pairs] == [0.75, -0.25, -0.25, -0.25, 0.5, -0.5]
    assert [member for member, _ in pairs][4:] == [groups[2].members[0], groups[2].members[2]]
    # Members at the mean have no gradient either, in a group that learns.
    assert len(learning_members([group([1.0, 0.5, 0.0])])) == 2
