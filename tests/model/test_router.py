"""The router: selection with bias and groups, weights without bias, replay, load balancing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.model.config import MoEConfig
from composer2_jax.model.router import LIVE, loads, route, updated_bias

GROUPED = MoEConfig(
    num_experts=12, experts_per_token=3, num_groups=4, groups_per_token=2, weight_scale=2.5
)


def reference(logits: np.ndarray, bias: np.ndarray, config: MoEConfig) -> tuple[set[int], dict]:
    """One token's experts and weights, after DeepSeek-V3's description."""
    scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
    choice = scores + bias
    groups = choice.reshape(config.num_groups, -1)
    group_scores = np.sort(groups, axis=1)[:, -2:].sum(axis=1)
    best = np.argsort(-group_scores)[: config.groups_per_token]
    size = groups.shape[1]
    allowed = [e for e in range(config.num_experts) if e // size in best]
    chosen = sorted(allowed, key=lambda e: -choice[e])[: config.experts_per_token]
    total = sum(scores[e] for e in chosen)
    return set(chosen), {e: config.weight_scale * scores[e] / total for e in chosen}


def test_groups_limit_the_choice_as_the_reference_does() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(64, 12)).astype(np.float32)
    bias = random.normal(size=12).astype(np.float32)
    routes = route(jnp.asarray(logits), jnp.asarray(bias), GROUPED)
    free = 0
    for token in range(64):
        chosen, weights = reference(logits[token], bias, GROUPED)
        have = np.asarray(routes.experts[token]).tolist()
        assert set(have) == chosen
        for expert, weight in zip(have, np.asarray(routes.weights[token]), strict=True):
            assert weight == pytest.approx(weights[expert], rel=1e-5)
        scores = 1 / (1 + np.exp(-logits[token])) + bias
        free += set(np.argsort(-scores)[:3].tolist()) != chosen
    assert free > 0  # else the groups limit nothing here and the test shows nothing


def test_the_bias_chooses_but_does_not_weigh() -> None:
    config = MoEConfig(num_experts=4, experts_per_token=2, normalize_weights=False)
    logits = jnp.asarray([[3.0, 2.0, 1.0, 0.0]])
    routes = route(logits, jnp.asarray([0.0, 0.0, 0.0, 5.0]), config)
    assert set(np.asarray(routes.experts[0]).tolist()) == {0, 3}
    place = np.asarray(routes.experts[0]).tolist().index(3)
    assert routes.weights[0, place] == pytest.approx(0.5)  # sigmoid(0), without the 5


def test_replayed_experts_keep_their_own_scores_and_gradients() -> None:
    """Weights gathered after zeroing what was not chosen would be 0, and so would gradients."""
    config = MoEConfig(num_experts=4, experts_per_token=2, normalize_weights=False)
    logits, bias = jnp.asarray([[5.0, 4.0, 3.0, 2.0]]), jnp.zeros(4)
    own = route(logits, bias, config)
    assert set(np.asarray(own.experts[0]).tolist()) == {0, 1}
    replay = jnp.asarray([[2, 3]])
    routes = route(logits, bias, config, replay)
    np.testing.assert_array_equal(routes.experts, replay)
    np.testing.assert_allclose(routes.weights[0], 1 / (1 + np.exp([-3.0, -2.0])), rtol=1e-6)
    slope = jax.grad(lambda x: route(x, bias, config, replay).weights[0, 0])(logits)[0]
    assert slope[2] > 0.01
    assert slope[0] == slope[1] == slope[3] == 0


def test_a_missing_route_is_routed_live() -> None:
    """A row that was not recorded must not fall to expert 0."""
    config = MoEConfig(num_experts=4, experts_per_token=2)
    logits = jnp.asarray([[0.0, 1.0, 3.0, 2.0], [0.0, 1.0, 3.0, 2.0]])
    routes = route(logits, jnp.zeros(4), config, jnp.asarray([[LIVE, LIVE], [0, 1]]))
    assert np.asarray(routes.experts).tolist() == [[2, 3], [0, 1]]


def test_pads_do_not_count_in_the_loads() -> None:
    experts = jnp.asarray([[0, 1], [0, 2], [3, 3]])
    assert np.asarray(loads(experts, jnp.asarray([1.0, 1.0, 0.0]), 4)).tolist() == [2, 1, 1, 0]


def test_the_bias_moves_against_the_load() -> None:
    """Above the mean it falls, below it rises, at the mean it stays."""
    load = jnp.asarray([[8.0, 4.0, 0.0, 4.0]])
    moved = updated_bias(jnp.zeros((1, 4)), load, 0.1)
    np.testing.assert_allclose(moved, [[-0.1, 0.0, 0.1, 0.0]], atol=1e-7)


def test_a_skewed_router_is_balanced_by_its_bias() -> None:
    """The routing bias that is never updated is a known fault: max/mean load must come down."""
    config = MoEConfig(num_experts=8, experts_per_token=2)
    skew = jnp.linspace(1.5, -1.5, 8)
    logits = jax.random.normal(jax.random.key(0), (256, 8)) + skew

    def busiest(bias: jax.Array) -> jax.Array:
        return loads(route(logits, bias, config).experts, jnp.ones(256), 8)

    def update(bias: jax.Array, _: None) -> tuple[jax.Array, None]:
        return updated_bias(bias[None], busiest(bias)[None], 0.01)[0], None

    bias, _ = jax.jit(lambda b: jax.lax.scan(update, b, None, length=150))(jnp.zeros(8))
    before, after = busiest(jnp.zeros(8)), busiest(bias)
    assert before.max() / before.mean() > 2.0
    assert after.max() / after.mean() < 1.25
