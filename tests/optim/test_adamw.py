"""AdamW against the update written out in numpy, and training of a part."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.core.trees import named_leaves
from composer2_jax.errors import UserError
from composer2_jax.optim.adamw import OptimizerConfig, make_optimizer

PARAMS = {
    "block": {"weight": jnp.asarray([[1.0, -2.0]]), "norm_scale": jnp.asarray([[1.0, 1.0]])},
    "mtp": {"weight": jnp.asarray([[0.5]])},
}
GRADS = [
    {
        "block": {"weight": jnp.asarray([[0.3, -4.0]]), "norm_scale": jnp.asarray([[0.1, 0.0]])},
        "mtp": {"weight": jnp.asarray([[scale]])},
    }
    for scale in (0.2, -1.0)
]


def flat(tree: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree)}


def by_hand(config: OptimizerConfig, rates: list[float]) -> dict[str, np.ndarray]:
    values = flat(PARAMS)
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    for count, (tree, rate) in enumerate(zip(GRADS, rates, strict=True), 1):
        grads = flat(tree)
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        shrink = min(1.0, config.clip_norm / norm)
        for name, raw in grads.items():
            g = raw * shrink
            first[name] = config.b1 * first[name] + (1 - config.b1) * g
            second[name] = config.b2 * second[name] + (1 - config.b2) * g**2
            m = first[name] / (1 - config.b1**count)
            v = second[name] / (1 - config.b2**count)
            decay = 0.0 if "norm" in name else config.weight_decay
            step = m / (np.sqrt(v) + config.epsilon) + decay * values[name]
            values[name] = values[name] - rate * step
    return values


def test_two_steps_equal_the_update_by_hand() -> None:
    """Norm scales are not decayed even where they are 2-D; the norm is clipped over all leaves."""
    config = OptimizerConfig(0.1, "constant", warmup_steps=2, weight_decay=0.5)
    optimizer = make_optimizer(config, 10)
    params, state = PARAMS, optimizer.init(PARAMS)
    for step, grads in enumerate(GRADS):
        params, state = optimizer.update(grads, state, params, step)
    wanted = by_hand(config, [0.05, 0.1])
    for name, value in flat(params).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, err_msg=name)


def test_a_frozen_weight_has_no_moments() -> None:
    optimizer = make_optimizer(OptimizerConfig(trainable=("mtp",)), 10)
    shapes = [leaf.shape for leaf in jax.tree.leaves(optimizer.init(PARAMS)) if leaf.ndim]
    assert shapes == [(1, 1), (1, 1)]  # two moments of mtp/weight, nothing else


def test_bad_settings_are_named() -> None:
    with pytest.raises(UserError, match="schedule"):
        OptimizerConfig(schedule="triangle")
    with pytest.raises(UserError, match="clip_norm"):
        OptimizerConfig(clip_norm=0.0)
    with pytest.raises(UserError, match="mpt"):
        make_optimizer(OptimizerConfig(trainable=("mpt",)), 10).init(PARAMS)
