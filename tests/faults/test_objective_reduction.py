"""Faults of reduction that other trainers had: a gradient that depends on how the batch was split,
packed or spread over devices, and 0 / 0 where everything is masked.

Four sequences of 2, 6, 3 and 9 tokens with weights 1, -1, .5, -.5. The mean of the microbatches'
means would weigh a token of the short ones four times as much as one of the long one.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from composer2_jax.core.numerics import WeightedMetric, masked_sum
from composer2_jax.model.transformer import Transformer, Variables
from composer2_jax.optim.adamw import Optimizer, OptimizerConfig
from composer2_jax.train.losses import (
    Aux,
    Batch,
    LossConfig,
    make_loss,
    target_mask,
    token_logprobs,
)
from composer2_jax.train.state import init_state
from composer2_jax.train.step import make_streamed_step, make_train_step
from tests.model import tiny

SEQUENCES = [tiny.sequence(length, length) for length in (2, 6, 3, 9)]
WEIGHTS = (1.0, -1.0, 0.5, -0.5)
# Remembers the gradient as it is, and moves nothing.
KEEPER = Optimizer(OptimizerConfig(), optax.trace(0.0), lambda step: jnp.zeros(()))


def weighted_loss(variables: Variables, batch: Batch) -> tuple[WeightedMetric, Aux]:
    """-sum of weight x log p over all targets, divided by their number."""
    inputs = (batch[name] for name in ("tokens", "segment_ids", "positions"))
    output = Transformer(tiny.CONFIG).apply(variables, *inputs)
    values = -token_logprobs(output.logits, batch["tokens"]) * batch["weights"][:, 1:]
    return WeightedMetric(*masked_sum(values, target_mask(batch))), Aux({}, output.loads)


def batch_of(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Rows of sequence numbers -> a batch with every token's weight."""
    batch: dict[str, Any] = tiny.pack([[SEQUENCES[i] for i in row] for row in rows])
    batch["weights"] = np.zeros(batch["tokens"].shape, np.float32)
    for row, numbers in enumerate(rows):
        spans = np.repeat([WEIGHTS[i] for i in numbers], [len(SEQUENCES[i]) for i in numbers])
        batch["weights"][row, : len(spans)] = spans
    return batch


def gradient_after(step: Any, batch: Any) -> np.ndarray:
    """The gradient that the optimizer was given, flat."""
    state = init_state(jax.tree.map(jnp.array, tiny.variables()), KEEPER)
    state, _ = step(state, batch)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.opt_state.trace)])


@functools.cache
def whole() -> np.ndarray:
    step = make_train_step(tiny.CONFIG, KEEPER, weighted_loss)
    return gradient_after(step, batch_of([[0], [1], [2], [3]]))


def assert_same(have: np.ndarray, want: np.ndarray) -> None:
    assert np.abs(want).max() > 1e-3
    np.testing.assert_allclose(have, want, atol=1e-6 * np.abs(want).max() + 1e-8, rtol=1e-5)


@pytest.mark.parametrize("microbatches", [2, 4])
def test_microbatches_equal_the_whole_batch(microbatches: int) -> None:
    step = make_train_step(tiny.CONFIG, KEEPER, weighted_loss, microbatches=microbatches)
    assert_same(gradient_after(step, batch_of([[0], [1], [2], [3]])), whole())


def test_streamed_microbatches_equal_the_whole_batch() -> None:
    step = make_streamed_step(tiny.CONFIG, KEEPER, weighted_loss)
    assert_same(gradient_after(step, [batch_of([[i]]) for i in (3, 1, 0, 2)]), whole())


def test_packed_equals_unpacked() -> None:
    """All four in one row of 20 tokens; the other rows are padding."""
    step = make_train_step(tiny.CONFIG, KEEPER, weighted_loss)
    assert_same(gradient_after(step, batch_of([[2, 0, 3, 1], [], [], []])), whole())


def test_a_joint_loss_is_split_exactly_too() -> None:
    """Two terms with different counts share one divisor, which adds up over microbatches."""
    loss_fn = make_loss(tiny.CONFIG, LossConfig(mtp=0.3, z=0.01))
    batch = batch_of([[0], [1], [2], [3]])
    steps = [make_train_step(tiny.CONFIG, KEEPER, loss_fn, microbatches=n) for n in (1, 2)]
    one, two = (gradient_after(step, batch) for step in steps)
    assert_same(two, one)


def test_a_batch_without_targets_moves_nothing_and_counts() -> None:
    """Loss 0 and gradients 0, not NaN; the step is not a skipped one."""
    batch = batch_of([[0], [1], [2], [3]])
    batch["loss_mask"][:] = 0
    step = make_train_step(tiny.CONFIG, KEEPER, weighted_loss)
    state, metrics = step(init_state(jax.tree.map(jnp.array, tiny.variables()), KEEPER), batch)
    assert float(metrics["objective"]) == 0.0 and float(metrics["grad_norm"]) == 0.0
    assert int(state.step) == 1 and int(state.skipped) == 0
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(state.opt_state.trace))


ON_DEVICES = """
import jax, numpy as np
from composer2_jax.core.sharding import batch_sharding, make_mesh
from composer2_jax.train.step import make_train_step
from tests.faults.test_objective_reduction import *

assert len(jax.devices()) == 4
step = make_train_step(tiny.CONFIG, KEEPER, weighted_loss)
batch = batch_of([[0], [1], [2], [3]])
for count in (1, 2, 4):
    sharding = batch_sharding(make_mesh(devices=jax.devices()[:count]))
    placed = {name: jax.device_put(leaf, sharding) for name, leaf in batch.items()}
    np.save(f"{sys.argv[1]}/{count}.npy", gradient_after(step, placed))
"""


def test_the_number_of_devices_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of very different lengths on 1, 2 and 4 devices: the sum is over all of them."""
    monkeypatch.setenv(
        "XLA_FLAGS",
        "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0",
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", ON_DEVICES, str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=120)
    for count in (1, 2, 4):
        assert_same(np.load(tmp_path / f"{count}.npy"), whole())
