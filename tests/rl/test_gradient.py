"""The update of a packed RL batch: the same whatever the split, the packing and the neighbours."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from composer2_jax.model.transformer import Variables
from composer2_jax.optim.adamw import Optimizer, OptimizerConfig
from composer2_jax.rl.batching import Batch, pack_rows
from composer2_jax.rl.loss import MISMATCH_EDGES, make_rl_loss, mismatch_quantile
from composer2_jax.rl.trajectory import Trajectory
from composer2_jax.train.state import init_state
from composer2_jax.train.step import make_streamed_step
from tests.rl.test_batching import MEMBERS
from tests.sampler.samples import MODEL, training_logprobs, variables

Z = 7.0
ROW = 20  # holds all four
Member = tuple[Trajectory, float]


class Update(NamedTuple):
    """What one step did: the gradient that the optimizer was given, flat, and the metrics."""

    gradient: np.ndarray
    metrics: dict[str, Any]
    step: int


# Remembers the gradient as it is, and moves nothing.
KEEPER = Optimizer(OptimizerConfig(), optax.trace(0.0), lambda step: jnp.zeros(()))


@functools.cache
def compiled(ratio_cap: float | None = None) -> Any:
    return make_streamed_step(MODEL, KEEPER, make_rl_loss(MODEL, ratio_cap))


def update(pieces: Sequence[Batch], weights: Variables | None = None, step: Any = None) -> Update:
    # The step reuses the state's memory, so it gets a copy.
    state = init_state(jax.tree.map(jnp.copy, weights or variables()), KEEPER)
    state, metrics = (step or compiled())(state, pieces)
    leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.opt_state.trace)]
    return Update(np.concatenate(leaves), metrics, int(state.step))


def each_alone(members: Sequence[Member]) -> list[Batch]:
    """One trajectory a microbatch, each at the start of a row of its own."""
    share = Z / len(members)
    return [pack_rows([member], (ROW,), ROW, share, 0)[0] for member in members]


@functools.cache
def reference() -> Update:
    return update(each_alone(MEMBERS))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("split", [(4,), (2, 2), (1, 3)])
def test_the_gradient_does_not_depend_on_the_split_into_microbatches(
    split: tuple[int, ...],
) -> None:
    pieces, start = [], 0
    for size in split:
        pieces += pack_rows(MEMBERS[start : start + size], (ROW,), ROW, Z * size / len(MEMBERS), 0)
        start += size
    assert len(pieces) == len(split)
    found = update(pieces)
    assert distance(found.gradient, reference().gradient) < 1e-6
    for name in ("objective", "entropy", "mismatch_mean", "tokens"):
        assert float(found.metrics[name]) == pytest.approx(
            float(reference().metrics[name]), rel=1e-5
        )


def test_the_gradient_does_not_depend_on_rows_side_by_side() -> None:
    (batch,) = pack_rows(MEMBERS, (11,), 22, Z, 0)
    assert (batch["segment_ids"].max(axis=1) == 2).all()
    assert distance(update([batch]).gradient, reference().gradient) < 1e-6


def test_the_gradient_is_that_of_the_loss() -> None:
    """The value against the forward pass, the gradient against differences of values."""
    expected = -sum(
        advantage * float((training_logprobs(member.tokens) * member.mask).sum())
        for member, advantage in MEMBERS
    )
    assert float(reference().metrics["objective"]) == pytest.approx(expected / Z, rel=1e-5)
    rng = np.random.default_rng(0)
    direction = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), variables()["params"]
    )
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(direction)])
    size = 3e-4
    values = []
    for sign in (1, -1):
        moved = jax.tree.map(
            lambda p, d, s=sign: p + s * size * d, variables()["params"], direction
        )
        weights = {"params": moved, "router": variables()["router"]}
        values.append(float(update(each_alone(MEMBERS), weights).metrics["objective"]))
    slope = (values[0] - values[1]) / (2 * size)
    assert slope == pytest.approx(float(flat @ reference().gradient), rel=0.02)


def test_each_token_is_weighed_by_its_truncated_ratio() -> None:
    """The sampler had half the probability of every token (ratio 2, cut to 1.5), then twice."""
    for shift, ratio in ((0.5, 1.5), (2.0, 0.5)):
        members = []
        for member, advantage in MEMBERS:
            logprobs = training_logprobs(member.tokens) + np.log(shift)
            shifted = {**vars(member), "logprobs": tuple(float(x) for x in logprobs)}
            members.append((Trajectory(**shifted), advantage))
        found = update(each_alone(members), step=compiled(1.5))
        assert distance(found.gradient, ratio * reference().gradient) < 1e-4
        assert float(found.metrics["ratio_mean"]) == pytest.approx(ratio, rel=1e-4)


def test_the_constant_makes_gradients_add_up() -> None:
    """With a divisor that counts tokens or members, two halves would not sum to the whole."""
    halves = [
        update(pack_rows(half, (ROW,), ROW, Z, 0)).gradient for half in (MEMBERS[:2], MEMBERS[2:])
    ]
    assert distance(halves[0] + halves[1], reference().gradient) < 1e-6


def test_a_member_without_advantage_changes_nothing() -> None:
    at_the_mean = (MEMBERS[3][0], 0.0)
    found = update(each_alone([*MEMBERS, at_the_mean]))
    assert distance(found.gradient, reference().gradient) < 1e-6


def test_what_the_harness_wrote_is_not_trained_on() -> None:
    member, advantage = MEMBERS[1]
    silent = Trajectory(**{**vars(member), "mask": (0,) * len(member.tokens)})
    found = update(pack_rows([(silent, advantage)], (ROW,), ROW, Z, 0))
    assert (found.gradient == 0.0).all() and float(found.metrics["objective"]) == 0.0


def test_an_update_with_nothing_to_learn_is_counted_and_moves_nothing() -> None:
    found = update(pack_rows([], (ROW,), ROW, Z, 0))
    assert (found.gradient == 0.0).all() and float(found.metrics["objective"]) == 0.0
    assert found.step == 1 and int(found.metrics["skipped"]) == 0
    assert all(np.isfinite(value).all() for value in found.metrics.values())


def test_the_samplers_logprobs_are_compared_and_not_used() -> None:
    """No importance ratio: a stale logprob shows in the mismatch, and in nothing else."""
    exact, shifted = [], []
    for member, advantage in MEMBERS:
        logprobs = training_logprobs(member.tokens)
        exact.append((Trajectory(**{**vars(member), "logprobs": tuple(logprobs)}), advantage))
        off = tuple(logprobs - 0.25)
        shifted.append((Trajectory(**{**vars(member), "logprobs": off}), advantage))
    agreeing, differing = update(each_alone(exact)), update(each_alone(shifted))
    assert (agreeing.gradient == reference().gradient).all()
    assert (differing.gradient == reference().gradient).all()
    assert float(agreeing.metrics["mismatch_mean"]) < 1e-4
    assert float(differing.metrics["mismatch_mean"]) == pytest.approx(0.25, rel=1e-3)
    histogram = np.asarray(differing.metrics["mismatch_histogram"])
    assert 0.25 * 0.999 <= mismatch_quantile(histogram, 0.99) <= 0.25 * 10**0.1 * 1.001


def test_older_weights_count_as_drift_and_not_as_mismatch() -> None:
    """Half of the members are one update old: their gap is the policy's, not the numerics'."""
    made = []
    for number, (member, advantage) in enumerate(MEMBERS):
        off = 0.0 if number % 2 else 0.25
        logprobs = tuple(training_logprobs(member.tokens) - off)
        versions = tuple(7 - (number % 2 == 0) if on else -1 for on in member.mask)
        changed = {**vars(member), "logprobs": logprobs, "versions": versions}
        made.append((Trajectory(**changed), advantage))
    metrics = update(pack_rows(made, (11,), 22, Z, 7)).metrics
    assert float(metrics["mismatch_mean"]) < 1e-4
    assert float(metrics["drift_mean"]) == pytest.approx(0.25, rel=1e-3)
    assert mismatch_quantile(np.asarray(metrics["mismatch_histogram"]), 1.0) < 1e-3


def test_the_router_is_left_alone() -> None:
    state = init_state(jax.tree.map(jnp.copy, variables()), KEEPER)
    before = jax.tree.map(np.asarray, variables()["router"])
    state, metrics = compiled()(state, each_alone(MEMBERS))
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, state.router))
    assert "load_max_over_mean" not in metrics


def test_a_quantile_of_the_mismatch_is_read_off_its_histogram() -> None:
    bins = len(MISMATCH_EDGES) - 1
    histogram = np.zeros(bins)
    assert mismatch_quantile(histogram, 0.99) == 0.0
    histogram[20], histogram[80] = 98.0, 2.0
    assert mismatch_quantile(histogram, 0.5) == MISMATCH_EDGES[21]
    assert mismatch_quantile(histogram, 0.98) == MISMATCH_EDGES[21]
    assert mismatch_quantile(histogram, 0.99) == MISMATCH_EDGES[81]
    assert mismatch_quantile(histogram, 1.0) == MISMATCH_EDGES[81]
