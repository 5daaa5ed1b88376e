"""Drawing a token and its log-probability from logits, reproducibly for each request."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def draw(
    logits: Float[Array, "B V"],
    seeds: Int[Array, "B"],
    positions: Int[Array, "B"],
    temperature: float,
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Draws one token a row from softmax(logits / temperature); 0 means the most likely one.

    The random number depends on (seed, position) alone, so a request's tokens do not depend on
    its neighbours in the batch. One uniform a row is turned into a token through the cumulative
    distribution: at small vocabularies much cheaper than a Gumbel number for every entry.

    The log-probability is that of the drawn token at temperature 1, which is what the policy
    gradient differentiates; at another temperature the two differ, on purpose.
    """
    logprobs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    if temperature == 0.0:
        tokens = jnp.argmax(logits, axis=-1)
    else:
        keys = jax.vmap(lambda s, p: jax.random.fold_in(jax.random.key(s), p))(seeds, positions)
        uniform = jax.vmap(lambda key: jax.random.uniform(key))(keys)
        cumulative = jnp.cumsum(jax.nn.softmax(logits / temperature, axis=-1), axis=-1)
        below = cumulative <= (uniform * cumulative[:, -1] * (1 - 1e-6))[:, None]
        tokens = below.sum(axis=-1)
    tokens = tokens.astype(jnp.int32)
    return tokens, jnp.take_along_axis(logprobs, tokens[:, None], axis=-1)[:, 0]
