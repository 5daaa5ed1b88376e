"""Losses as (sum, weight) pairs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from composer2_jax.core.numerics import WeightedMetric, masked_sum


def test_what_is_masked_may_be_infinite() -> None:
    """0 * inf is NaN: a mask that only multiplies would let a pad's inf through."""
    values = jnp.asarray([1.0, jnp.inf, 2.0, jnp.nan])
    total, weight = masked_sum(values, jnp.asarray([1.0, 0.0, 0.5, 0.0]))
    assert float(total) == 2.0
    assert float(weight) == 1.5


def test_the_mean_of_nothing_is_zero_with_a_zero_gradient() -> None:
    def mean(x: jax.Array) -> jax.Array:
        return WeightedMetric(*masked_sum(x, jnp.zeros(3))).mean()

    assert float(mean(jnp.ones(3))) == 0.0
    assert jax.grad(mean)(jnp.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_added_pairs_reduce_as_one() -> None:
    """1/1 and 3/3 tokens: the mean of means would be 1.5, the mean over tokens is 1.75."""
    parts = [WeightedMetric(jnp.asarray(1.0), jnp.asarray(1.0))]
    parts.append(WeightedMetric(jnp.asarray(6.0), jnp.asarray(3.0)))
    whole = jax.tree.map(jnp.add, *parts)
    assert float(whole.mean()) == pytest.approx(1.75)
