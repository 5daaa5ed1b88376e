"""Rotary positions and YaRN against formulae written down independently."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.model import rope
from composer2_jax.model.config import MLAConfig, YarnConfig


def test_frequencies_without_yarn_are_powers_of_theta() -> None:
    have = rope.inverse_frequencies(8, 10_000.0, None)
    np.testing.assert_allclose(have, [1.0, 0.1, 0.01, 0.001], rtol=1e-12)
    same = rope.inverse_frequencies(8, 10_000.0, YarnConfig(factor=1.0))
    np.testing.assert_array_equal(have, same)


def test_yarn_keeps_fast_waves_and_stretches_slow_ones() -> None:
    yarn = YarnConfig(factor=40.0, original_length=4096, beta_fast=32.0, beta_slow=1.0)
    plain = rope.inverse_frequencies(64, 10_000.0, None)
    ratio = plain / rope.inverse_frequencies(64, 10_000.0, yarn)
    turns = 4096 * plain / (2 * math.pi)
    np.testing.assert_allclose(ratio[turns > 40], 1.0, rtol=1e-9)
    np.testing.assert_allclose(ratio[turns < 0.7], 40.0, rtol=1e-9)
    assert (np.diff(ratio) >= -1e-9).all()
    assert ((ratio > 1.0) & (ratio < 40.0)).any()  # the ramp between them


def test_the_softmax_magnitude_of_deepseek_is_not_missing() -> None:
    """factor 40 with mscale_all_dim 1 multiplies the softmax scale by 1.87; rotation stays 1."""
    yarn = YarnConfig(factor=40.0, mscale=1.0, mscale_all_dim=1.0)
    assert rope.softmax_magnitude(yarn) == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert rope.softmax_magnitude(yarn) == pytest.approx(1.8739, abs=1e-3)
    assert rope.rotation_magnitude(yarn) == 1.0
    assert rope.softmax_magnitude(None) == rope.rotation_magnitude(None) == 1.0


@pytest.mark.parametrize("interleave", [True, False])
def test_products_depend_on_the_distance_alone(interleave: bool) -> None:
    config = MLAConfig(rope_interleave=interleave, yarn=YarnConfig(4.0, 16))
    random = np.random.default_rng(0)
    query, key = (jnp.asarray(random.normal(size=(1, 1, 8)), jnp.float32) for _ in range(2))

    def product(at: int, other: int) -> float:
        places = [jnp.asarray([[place]]) for place in (at, other)]
        pair = rope.rotate(query, places[0], config) * rope.rotate(key, places[1], config)
        return float(pair.sum())

    assert product(70, 65) == pytest.approx(product(5, 0), abs=1e-4)
    assert product(5, 0) != pytest.approx(product(6, 0), abs=1e-3)


def test_the_two_pairings_differ_by_a_permutation_only() -> None:
    """A checkpoint that pairs (0,1),(2,3) and one that pairs (0,2),(1,3) hold the same function."""
    random = np.random.default_rng(1)
    x = random.normal(size=(1, 5, 2, 4)).astype(np.float32)
    places = jnp.arange(5)[None]
    pairs = rope.rotate(jnp.asarray(x), places, MLAConfig(rope_interleave=True))
    halves = rope.rotate(
        jnp.asarray(x[..., [0, 2, 1, 3]]), places, MLAConfig(rope_interleave=False)
    )
    np.testing.assert_allclose(pairs, halves, atol=1e-6)
    turned = np.cos(4.0) * x[0, 4, :, 0] - np.sin(4.0) * x[0, 4, :, 1]
    np.testing.assert_allclose(pairs[0, 4, :, 0], turned, atol=1e-5)
