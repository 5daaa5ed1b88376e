"""The decoder: embedding, dense blocks, scanned sparse blocks, head, and the MTP layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from composer2_jax.model.config import ModelConfig
from composer2_jax.model.layers import Embedding, Layer, previous_tokens, rms_norm
from composer2_jax.model.mtp import MTPLayer, next_in_segment
from composer2_jax.model.transformer_block import Block, BlockInputs, scanned_blocks

Variables = dict[str, Any]  # {"params": ..., "router": {... selection biases}}


class Output(NamedTuple):
    """What a forward pass returns."""

    logits: Float[Array, "B T V"] | Float[Array, "N V"]
    hidden: Float[Array, "B T D"]  # after the final norm
    loads: Float[Array, "L E"]  # assignments of each sparse layer's experts, pads left out
    experts: Int[Array, "L B T k"]  # routes, to record and replay
    mtp_logits: Float[Array, "B T V"] | None  # row t guesses token t + 2
    mtp_loads: Float[Array, "E"] | None


class Transformer(Layer):
    """`segment_ids` 0 marks padding; `positions` restart in each packed segment."""

    def setup(self) -> None:
        cfg = self.config
        self.embedding = Embedding(cfg)
        self.dense_blocks = [Block(cfg, sparse=False) for _ in range(cfg.first_dense_layers)]
        self.sparse_blocks = scanned_blocks(cfg, cfg.num_moe_layers, "sparse_blocks")
        self.final_norm = self.scale("final_norm_scale", cfg.embed_dim)
        if cfg.num_mtp_layers:
            self.mtp = MTPLayer(cfg)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        segment_ids: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        *,
        mtp: bool = False,
        replay: Int[Array, "L B T k"] | None = None,
        logits_at: Int[Array, "N"] | None = None,
    ) -> Output:
        """`logits_at` names flat places (row * T + t) and makes `logits` [N V]: a loss on few
        tokens need not pay for the vocabulary at all of them."""
        inputs = BlockInputs(segment_ids, positions, (segment_ids > 0).astype(jnp.float32))
        x = self.embedding.encode(tokens, previous_tokens(tokens, positions))
        for block in self.dense_blocks:
            x, _ = block(x, inputs, None)
        x, (loads, experts) = self.sparse_blocks(x, inputs, replay)
        hidden = rms_norm(x, self.final_norm, self.config.norm_epsilon)
        wanted = hidden if logits_at is None else hidden.reshape(-1, hidden.shape[-1])[logits_at]
        logits = self.embedding.decode(wanted)
        mtp_logits, mtp_loads = self._draft(tokens, hidden, inputs) if mtp else (None, None)
        return Output(logits, hidden, loads, experts, mtp_logits, mtp_loads)

    def _draft(self, tokens, hidden, inputs: BlockInputs):
        following, _ = next_in_segment(tokens, inputs.segment_ids)
        embedded = self.embedding.encode(following, tokens)
        if self.config.mtp_detach_trunk:
            hidden, embedded = jax.lax.stop_gradient((hidden, embedded))
        drafted, load = self.mtp(hidden, embedded, inputs)
        return self.embedding.decode(drafted, frozen=True), load


def init_boxed(config: ModelConfig, key: jax.Array) -> Variables:
    """Fresh weights, still boxed with their logical axes (for `core.sharding`)."""
    row = jnp.zeros((1, 8), jnp.int32)
    model = Transformer(config)
    return model.init(key, row, row + 1, row, mtp=config.num_mtp_layers > 0)


def init_variables(config: ModelConfig, key: jax.Array) -> Variables:
    """Fresh weights as plain arrays: {"params": ..., "router": ...}."""
    return nn.unbox(jax.jit(lambda k: init_boxed(config, k))(key))


def variable_shapes(config: ModelConfig) -> Variables:
    """The shape and dtype of every weight and router bias, without making them."""
    return jax.eval_shape(lambda: init_variables(config, jax.random.key(0)))
