"""One decoder block: attention, then a dense or a sparse feed-forward, both pre-normed."""

from __future__ import annotations

from typing import NamedTuple

from flax import linen as nn
from jaxtyping import Array, Float, Int

from composer2_jax.model.layers import Layer, SwiGLU, rms_norm
from composer2_jax.model.mla import LatentCache, MultiHeadLatentAttention
from composer2_jax.model.moe import MoE


class BlockInputs(NamedTuple):
    """What every block reads besides the residual stream."""

    segment_ids: Int[Array, "B T"]
    positions: Int[Array, "B T"]
    counted: Float[Array, "B T"]  # 1 where a token counts in expert loads (pads do not)


class Block(Layer):
    """Pre-norm residual block; `sparse` chooses the mixture of experts over the dense SwiGLU."""

    sparse: bool = True

    def setup(self) -> None:
        cfg = self.config
        self.attention_norm = self.scale("attention_norm_scale", cfg.embed_dim)
        self.attention = MultiHeadLatentAttention(cfg)
        self.mlp_norm = self.scale("mlp_norm_scale", cfg.embed_dim)
        self.mlp = MoE(cfg) if self.sparse else SwiGLU(cfg, cfg.dense_dim)

    def __call__(
        self, x: Float[Array, "B T D"], inputs: BlockInputs, replay: Int[Array, "B T k"] | None
    ) -> tuple[Float[Array, "B T D"], tuple[Array | None, Array | None]]:
        """Training view. Returns the stream and (expert load, experts chosen)."""
        normed = rms_norm(x, self.attention_norm, self.config.norm_epsilon)
        x = x + self.attention(normed, inputs.segment_ids, inputs.positions)
        return self._feed_forward(x, inputs.counted, replay)

    def extend(
        self, x: Float[Array, "B T D"], cache: LatentCache, positions: Int[Array, "B T"]
    ) -> tuple[Float[Array, "B T D"], LatentCache, Int[Array, "B T k"] | None]:
        """Decoding view over a latent cache. Returns stream, new cache entries, experts chosen."""
        normed = rms_norm(x, self.attention_norm, self.config.norm_epsilon)
        attended, entries = self.attention.extend(normed, cache, positions)
        x, (_, experts) = self._feed_forward(x + attended, (positions >= 0).astype(x.dtype), None)
        return x, entries, experts

    def _feed_forward(self, x, counted, replay):
        normed = rms_norm(x, self.mlp_norm, self.config.norm_epsilon)
        if not self.sparse:
            return x + self.mlp(normed), (None, None)
        out, load, experts = self.mlp(normed, counted, replay)
        return x + out, (load, experts)


def scanned_blocks(config, length: int, name: str) -> nn.Module:
    """`length` sparse blocks as one scanned (and, if asked, rematerialised) module."""
    block = nn.remat(Block, prevent_cse=False) if config.remat else Block
    return nn.scan(
        block,
        variable_axes={"params": 0, "router": 0},
        split_rngs={"params": True},
        in_axes=(nn.broadcast, 0),
        out_axes=0,
        length=length,
        unroll=config.scan_unroll,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )(config, sparse=True, name=name)
