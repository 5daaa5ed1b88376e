"""Ways to bring tokens to their experts. One contract: every assignment is computed, none dropped.

`dense` computes all experts for all tokens and masks; `ragged` sorts assignments by expert and
multiplies group by group. They agree, forward and backward (tests/model/test_dispatch.py).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from composer2_jax.model.router import Routes


class ExpertWeights(NamedTuple):
    """Stacked SwiGLU experts."""

    gate: Float[Array, "E D F"]
    up: Float[Array, "E D F"]
    down: Float[Array, "E F D"]


def dense(x: Float[Array, "N D"], routes: Routes, experts: ExpertWeights) -> Float[Array, "N D"]:
    """Every expert sees every token; weights of experts not chosen are 0.

    All experts side by side are one wide SwiGLU, so that each product is a single plain matmul:
    a CPU runs these several times faster than a batch of small ones.
    """
    size, embed, hidden_dim = experts.gate.shape
    chosen = jax.nn.one_hot(routes.experts, size, dtype=jnp.float32)
    weights = jnp.einsum("nk,nke->ne", routes.weights, chosen).astype(x.dtype)
    gate, up = (
        w.transpose(1, 0, 2).reshape(embed, size * hidden_dim) for w in (experts.gate, experts.up)
    )
    hidden = jax.nn.silu(x @ gate) * (x @ up)
    hidden = hidden.reshape(-1, size, hidden_dim) * weights[:, :, None]
    return hidden.reshape(-1, size * hidden_dim) @ experts.down.reshape(size * hidden_dim, embed)


def ragged(x: Float[Array, "N D"], routes: Routes, experts: ExpertWeights) -> Float[Array, "N D"]:
    """Assignments sorted by expert, one uneven group a matmul, scattered back and summed."""
    tokens, k = routes.experts.shape
    flat = routes.experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    sizes = jnp.bincount(flat, length=experts.gate.shape[0]).astype(jnp.int32)
    rows = x[order // k]
    hidden = jax.nn.silu(jax.lax.ragged_dot(rows, experts.gate, sizes))
    hidden = hidden * jax.lax.ragged_dot(rows, experts.up, sizes)
    out = jax.lax.ragged_dot(hidden, experts.down, sizes)
    out = out * routes.weights.reshape(-1)[order][:, None].astype(x.dtype)
    return jnp.zeros((tokens, x.shape[1]), x.dtype).at[order // k].add(out)


IMPLEMENTATIONS = {"dense": dense, "ragged": ragged}
