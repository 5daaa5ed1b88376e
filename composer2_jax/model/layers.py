"""Building blocks: the one place where a weight's shape, axes and initialiser stand together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from composer2_jax.model.config import ModelConfig


class Layer(nn.Module):
    """A module that declares weights by name, shape and logical axes."""

    config: ModelConfig

    def weight(
        self, name: str, shape: tuple[int, ...], axes: tuple[str | None, ...], fan_in: int
    ) -> Float[Array, "..."]:
        """A float32 weight, N(0, 1/fan_in), cast to the compute dtype where it is used."""
        init = nn.with_logical_partitioning(nn.initializers.normal(fan_in**-0.5), axes)
        return self.param(name, init, shape, jnp.float32).astype(self.config.dtype)

    def scale(self, name: str, size: int) -> Float[Array, "D"]:
        init = nn.with_logical_partitioning(nn.initializers.ones_init(), (None,))
        return self.param(name, init, (size,), jnp.float32)


def rms_norm(
    x: Float[Array, "... D"], scale: Float[Array, "D"], epsilon: float
) -> Float[Array, "... D"]:
    """Root-mean-square norm, computed in float32 and returned in x's dtype."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return (wide * scale).astype(x.dtype)


class SwiGLU(Layer):
    """Gated feed-forward: (silu(x W_gate) * x W_up) W_down."""

    hidden_dim: int = 0

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        embed, hidden = self.config.embed_dim, self.hidden_dim
        gate = self.weight("gate_proj", (embed, hidden), ("embed", "mlp"), embed)
        up = self.weight("up_proj", (embed, hidden), ("embed", "mlp"), embed)
        down = self.weight("down_proj", (hidden, embed), ("mlp", "embed"), hidden)
        return (nn.silu(x @ gate) * (x @ up)) @ down


class Embedding(Layer):
    """Token embedding, optional mixing with the previous token, and the output head."""

    def setup(self) -> None:
        cfg = self.config
        shape, axes = (cfg.vocab_size, cfg.embed_dim), ("vocab", "embed")
        init = nn.with_logical_partitioning(nn.initializers.normal(cfg.init_scale), axes)
        self.table = self.param("embedding", init, shape, jnp.float32)
        if not cfg.tie_embeddings:
            self.head = self.param("lm_head", init, shape, jnp.float32)
        if cfg.prev_token_mixing:
            self.mixing = self.weight(
                "prev_token_mixing", (cfg.embed_dim,) * 2, ("embed", None), cfg.embed_dim
            )

    def encode(
        self, tokens: Int[Array, "B T"], previous: Int[Array, "B T"] | None = None
    ) -> Float[Array, "B T D"]:
        """Embeds tokens; `previous` is each token's predecessor, -1 where a segment starts."""
        x = self._scaled(tokens)
        if self.config.prev_token_mixing:
            if previous is None:
                raise ValueError("prev_token_mixing needs the previous tokens")
            before = jnp.where(
                (previous >= 0)[..., None], self._scaled(jnp.maximum(previous, 0)), 0
            )
            x = x + before @ self.mixing
        return x

    def decode(
        self, hidden: Float[Array, "... D"], *, frozen: bool = False
    ) -> Float[Array, "... V"]:
        """Logits, always float32. `frozen` keeps this use's gradient out of the head."""
        head = self.table if self.config.tie_embeddings else self.head
        head = jax.lax.stop_gradient(head) if frozen else head
        return jnp.einsum(
            "...d,vd->...v", hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32
        )

    def _scaled(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        return self.table[tokens].astype(self.config.dtype)


def previous_tokens(tokens: Int[Array, "B T"], positions: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """The token before each one in its own segment, -1 at a segment's first position."""
    shifted = jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(positions > 0, shifted, -1)
