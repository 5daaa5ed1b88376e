"""Absorbed decoding over a latent cache computes what the expanded model computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.model import decoding
from composer2_jax.model.config import ModelConfig, YarnConfig
from tests.model import tiny

ROWS, CHUNK = 2, 6
YARN = dataclasses.replace(
    tiny.CONFIG, mla=dataclasses.replace(tiny.CONFIG.mla, yarn=YarnConfig(4.0, 8))
)


def decode(config: ModelConfig, sequences: list[list[int]], chunks: list[list[int]]) -> Any:
    """Feeds `chunks[i][b]` tokens of row b at a time; returns (row, position) -> logits, routes."""
    weights = decoding.decoding_weights(config, tiny.variables(config))
    cache = decoding.init_cache(config, ROWS, tiny.LENGTH)
    # Whatever an empty cache holds must not be read.
    cache = jax.tree.map(lambda leaf: leaf + 100.0, cache)
    extend = jax.jit(lambda *args: decoding.extend(config, weights, *args))
    append = jax.jit(decoding.append)
    starts, found, routes = np.zeros(ROWS, np.int32), {}, {}
    for sizes in chunks:
        tokens = np.full((ROWS, CHUNK), 9, np.int32)
        previous = np.full(ROWS, -1, np.int32)
        for row, size in enumerate(sizes):
            tokens[row, :size] = sequences[row][starts[row] : starts[row] + size]
            previous[row] = sequences[row][starts[row] - 1] if starts[row] else -1
        lengths = np.asarray(sizes, np.int32)
        logits, entries, experts = extend(cache, tokens, previous, starts, lengths)
        cache = append(cache, entries, jnp.arange(ROWS), starts)
        for row, size in enumerate(sizes):
            found[row, starts[row] + size - 1] = np.asarray(logits[row])
            for place in range(size):
                routes[row, starts[row] + place] = np.asarray(experts[:, row, place])
        starts = starts + lengths
    return found, routes


@pytest.mark.parametrize("config", [tiny.CONFIG, YARN], ids=["plain", "yarn"])
def test_absorbed_equals_expanded_with_ragged_rows(config: ModelConfig) -> None:
    """Rows advance by different lengths; pads of one chunk are overwritten by the next.

    Under YaRN the positions go past the original length, where a missing magnitude would show.
    """
    sequences = [tiny.sequence(18, 7), tiny.sequence(11, 8)]
    found, routes = decode(config, sequences, [[6, 3], [1, 6], [5, 1], [6, 1]])
    whole = tiny.forward(tiny.pack([[s] for s in sequences]), config)
    assert {(0, 17), (1, 10), (0, 6), (1, 2)} <= found.keys()
    for (row, place), logits in found.items():
        np.testing.assert_allclose(logits, whole.logits[row, place], atol=2e-5)
    for (row, place), experts in routes.items():
        np.testing.assert_array_equal(experts, whole.experts[:, row, place])


def test_yarn_changes_the_function_beyond_position_zero() -> None:
    """At position 0 every rotation is the identity and softmax has one entry: it would not show."""
    batch = tiny.pack([[tiny.sequence(18, 7)], []])
    plain = tiny.forward(batch, tiny.CONFIG, tiny.variables())
    yarn = tiny.forward(batch, YARN, tiny.variables())
    np.testing.assert_allclose(plain.logits[0, 0], yarn.logits[0, 0], atol=1e-6)
    assert np.abs(plain.logits[0, 17] - yarn.logits[0, 17]).max() > 1e-4
