"""The sigmoid router with a selection bias, group limits, and replay of recorded routes.

Selection uses score + bias, weighting the unbiased score (DeepSeek-V3, section 2.1.2). Replay
overrides the *choice* of experts by the sampler's, while scores stay this model's own, so that
gradients reach the router (report, section 4.3).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from composer2_jax.model.config import MoEConfig

LIVE = -1  # a recorded route that is missing: the router chooses for that token itself


class Routes(NamedTuple):
    """Chosen experts of each token and the weight of each."""

    experts: Int[Array, "N k"]
    weights: Float[Array, "N k"]


def route(
    logits: Float[Array, "N E"],
    bias: Float[Array, "E"],
    config: MoEConfig,
    replay: Int[Array, "N k"] | None = None,
) -> Routes:
    """Routes N tokens. `replay` rows that start with LIVE are routed here.

    Logits must be float32: near ties decide the expert, and bf16 has many.
    """
    scores = jax.nn.sigmoid(logits)
    choice = jax.lax.stop_gradient(scores + bias)
    _, experts = jax.lax.top_k(_keep_best_groups(choice, config), config.experts_per_token)
    if replay is not None:
        experts = jnp.where(replay[:, :1] == LIVE, experts, replay)
    weights = jnp.take_along_axis(scores, experts, axis=-1)
    if config.normalize_weights:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
    return Routes(experts, weights * config.weight_scale)


def loads(
    experts: Int[Array, "N k"], counted: Float[Array, "N"], num_experts: int
) -> Float[Array, "E"]:
    """Assignments an expert received from tokens that count (pads do not)."""
    hits = jax.nn.one_hot(experts, num_experts, dtype=jnp.float32).sum(axis=1)
    return (hits * counted[:, None]).sum(axis=0)


def updated_bias(
    bias: Float[Array, "L E"], load: Float[Array, "L E"], rate: float
) -> Float[Array, "L E"]:
    """Auxiliary-loss-free balancing: under-loaded experts gain bias, over-loaded ones lose it."""
    mean = load.mean(axis=-1, keepdims=True)
    return bias + rate * jnp.sign(mean - load)


def _keep_best_groups(choice: Float[Array, "N E"], config: MoEConfig) -> Float[Array, "N E"]:
    if config.num_groups == 1:
        return choice
    grouped = choice.reshape(choice.shape[0], config.num_groups, -1)
    group_score = jax.lax.top_k(grouped, 2)[0].sum(axis=-1)
    _, best = jax.lax.top_k(group_score, config.groups_per_token)
    kept = jax.nn.one_hot(best, config.num_groups, dtype=jnp.bool_).any(axis=1)
    return jnp.where(kept[:, :, None], grouped, -jnp.inf).reshape(choice.shape)
