"""Incremental decoding over a latent cache, as one pure function.

Layers are unrolled here and the cache is a tuple over layers: a scan that carries the cache would
copy all of it for every token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from composer2_jax.model.config import ModelConfig
from composer2_jax.model.layers import Embedding, rms_norm
from composer2_jax.model.mla import LatentCache
from composer2_jax.model.transformer import Variables
from composer2_jax.model.transformer_block import Block

Cache = tuple[LatentCache, ...]


class DecodingWeights(NamedTuple):
    """The trunk's weights with the scanned stack cut into layers, once per weight version."""

    embedding: dict[str, Any]
    layers: tuple[Variables, ...]
    final_norm: Float[Array, "D"]


def decoding_weights(config: ModelConfig, variables: Variables) -> DecodingWeights:
    """Cuts the stacked layers apart; the MTP layer, which decoding does not use, is left out."""
    params, router = variables["params"], variables["router"]
    dense = [{"params": params[f"dense_blocks_{i}"]} for i in range(config.first_dense_layers)]
    stacked = {"params": params["sparse_blocks"], "router": router["sparse_blocks"]}
    sparse = [
        jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(config.num_moe_layers)
    ]
    return DecodingWeights(params["embedding"], (*dense, *sparse), params["final_norm_scale"])


def init_cache(config: ModelConfig, rows: int, length: int) -> Cache:
    """An empty cache of `length` tokens for each of `rows` sequences."""
    mla, dtype = config.mla, jnp.dtype(config.dtype)
    return tuple(
        LatentCache(
            jnp.zeros((rows, length, mla.kv_lora_rank), dtype),
            jnp.zeros((rows, length, mla.qk_rope_head_dim), dtype),
        )
        for _ in range(config.num_layers)
    )


def extend(
    config: ModelConfig,
    weights: DecodingWeights,
    cache: Cache,
    tokens: Int[Array, "B T"],
    previous: Int[Array, "B"],
    starts: Int[Array, "B"],
    lengths: Int[Array, "B"],
) -> tuple[Float[Array, "B V"], Cache, Int[Array, "L B T k"]]:
    """Feeds up to T tokens a row and returns the logits after each row's last real one.

    Row b holds `lengths[b]` real tokens, the rest is padding; they stand at positions
    `starts[b]`, `starts[b]`+1, ... and follow the token `previous[b]` (-1: a fresh sequence).
    Also returns the new tokens' cache entries [B T ...] for the caller to store (`append`) and the
    experts that each token took in each sparse layer.
    """
    positions = starts[:, None] + jnp.arange(tokens.shape[1])
    embedding = Embedding(config).bind({"params": weights.embedding})
    before = jnp.concatenate([previous[:, None], tokens[:, :-1]], axis=1)
    x = embedding.encode(tokens, before)
    entries, experts = [], []
    for index, (layer, layer_cache) in enumerate(zip(weights.layers, cache, strict=True)):
        block = Block(config, sparse=index >= config.first_dense_layers)
        x, new, chosen = block.apply(layer, x, layer_cache, positions, method=Block.extend)
        entries.append(new)
        if chosen is not None:
            experts.append(chosen)
    last = jnp.take_along_axis(x, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)[:, 0]
    logits = embedding.decode(rms_norm(last, weights.final_norm, config.norm_epsilon))
    return logits, tuple(entries), jnp.stack(experts)


def append(cache: Cache, entries: Cache, slots: Int[Array, "B"], starts: Int[Array, "B"]) -> Cache:
    """Stores new entries of the rows `slots` from `starts` on; places past the end are dropped."""

    def write(whole: Float[Array, "S L R"], new: Float[Array, "B T R"]) -> Float[Array, "S L R"]:
        places = starts[:, None] + jnp.arange(new.shape[1])
        return whole.at[slots[:, None], places].set(new, mode="drop")

    return jax.tree.map(write, cache, entries)
