"""The training step: what it moves, what it leaves, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from composer2_jax.core.trees import digest, named_leaves
from composer2_jax.errors import UserError
from composer2_jax.optim.adamw import make_optimizer
from composer2_jax.train.losses import Aux, LossConfig, make_loss
from composer2_jax.train.state import TrainState, init_state
from composer2_jax.train.step import load_max_over_mean, make_train_step, updated_router
from tests.model import tiny
from tests.train.runs import OPTIMIZER, copied

BATCH = tiny.pack([[tiny.sequence(9, 1), tiny.sequence(8, 2)], [tiny.sequence(20, 3)]])
DRAFT_ONLY = dataclasses.replace(OPTIMIZER, trainable=("mtp",))


@functools.cache
def joint_step() -> Any:
    loss_fn = make_loss(tiny.CONFIG, LossConfig(mtp=0.3))
    return make_train_step(tiny.CONFIG, make_optimizer(OPTIMIZER, 10), loss_fn)


def start() -> TrainState:
    return init_state(copied(tiny.variables()), make_optimizer(OPTIMIZER, 10))


def test_a_step_moves_every_weight_and_lowers_the_loss() -> None:
    state, losses = start(), []
    for _ in range(4):
        state, metrics = joint_step()(state, BATCH)
        losses.append(float(metrics["objective"]))
    assert losses[-1] < losses[0] - 0.2
    assert int(state.step) == 4 and int(state.skipped) == 0
    before = dict(named_leaves(tiny.variables()["params"]))
    for name, leaf in named_leaves(state.params):
        assert not np.array_equal(leaf, before[name]), f"{name} did not move"
    assert float(metrics["tokens"]) == 37
    assert float(metrics["learning_rate"]) == pytest.approx(OPTIMIZER.learning_rate, rel=0.5)


def test_the_router_biases_move_against_the_loads_of_trunk_and_draft_layer() -> None:
    state, metrics = joint_step()(start(), BATCH)
    output = tiny.forward(BATCH)
    rate = tiny.CONFIG.moe.bias_update_rate
    before, after = (
        {name: np.asarray(leaf) for name, leaf in named_leaves(router)}
        for router in (tiny.variables()["router"], state.router)
    )
    assert len(after) == 2
    for name, bias in after.items():
        load = output.mtp_loads if name.startswith("mtp") else output.loads
        wanted = before[name] + rate * np.sign(load.mean(-1, keepdims=True) - load)
        np.testing.assert_allclose(bias, wanted, atol=1e-7, err_msg=name)
        assert np.abs(bias - before[name]).max() > 0.5 * rate
    assert float(metrics["load_max_over_mean"]) == pytest.approx(
        float(load_max_over_mean(output.loads))
    )


@pytest.mark.parametrize(
    ("trainable", "moved"),
    [((), 2), (("mtp",), 1), (("sparse_blocks/attention",), 0), (("sparse_blocks/mlp",), 1)],
)
def test_a_router_bias_moves_with_the_experts_that_it_serves(
    trainable: tuple[str, ...], moved: int
) -> None:
    optimizer = make_optimizer(dataclasses.replace(OPTIMIZER, trainable=trainable), 10)
    output = tiny.forward(BATCH)
    router = tiny.variables()["router"]
    changed = updated_router(router, Aux({}, output.loads, output.mtp_loads), 1e-3, optimizer)
    pairs = zip(jax.tree.leaves(router), jax.tree.leaves(changed), strict=True)
    assert sum(bool((before != after).any()) for before, after in pairs) == moved


def test_what_is_not_finite_is_skipped_and_counted() -> None:
    """Weights, moments and biases stay; the step goes on; the next update is as good as any."""
    state = start()
    clean = float(state.params["final_norm_scale"][0])
    poisoned = state.params | {
        "final_norm_scale": state.params["final_norm_scale"].at[0].set(np.inf)
    }
    state = state.replace(params=poisoned)
    weights, moments = digest(state.variables), digest(state.opt_state)
    state, metrics = joint_step()(state, BATCH)
    assert float(metrics["skipped"]) == 1 and int(state.skipped) == 1 and int(state.step) == 1
    assert digest(state.variables) == weights and digest(state.opt_state) == moments
    healed = state.params | {"final_norm_scale": state.params["final_norm_scale"].at[0].set(clean)}
    state, metrics = joint_step()(state.replace(params=healed), BATCH)
    assert float(metrics["skipped"]) == 0 and int(state.skipped) == 1 and int(state.step) == 2
    assert digest(state.variables) != weights


def test_the_draft_phase_trains_the_draft_layer_alone() -> None:
    """Neither the trunk, nor its head, nor its selection biases may move."""
    optimizer = make_optimizer(DRAFT_ONLY, 10)
    loss_fn = make_loss(tiny.CONFIG, LossConfig(next_token=0.0, mtp=1.0))
    step = make_train_step(tiny.CONFIG, optimizer, loss_fn)
    state, first = step(init_state(copied(tiny.variables()), optimizer), BATCH)
    for _ in range(3):
        state, last = step(state, BATCH)
    assert float(last["mtp_kl"]) < float(first["mtp_kl"])
    assert float(last["loss"]) == float(first["loss"])
    before = dict(named_leaves(tiny.variables()))
    for name, leaf in named_leaves(state.variables):
        moved = not np.array_equal(leaf, before[name])
        assert moved == ("/mtp/" in name), name


def test_rows_must_divide_into_the_microbatches() -> None:
    loss_fn = make_loss(tiny.CONFIG, LossConfig())
    step = make_train_step(tiny.CONFIG, make_optimizer(OPTIMIZER, 10), loss_fn, microbatches=3)
    with pytest.raises(UserError, match="3 microbatches"):
        step(start(), BATCH)


def test_the_old_state_is_given_away() -> None:
    """Two copies of weights and moments would not fit where one does."""
    state = start()
    leaf = jax.tree.leaves(state.params)[0]
    joint_step()(state, BATCH)
    assert leaf.is_deleted()
