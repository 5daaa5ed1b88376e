"""Multi-token prediction: one extra block that guesses the token after next (report, section 3).

Alignment: at position t the layer sees the trunk's state at t and the embedding of token t+1, and
must match the *main head's* distribution at position t+1, which predicts token t+2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from composer2_jax.model.layers import Layer, rms_norm
from composer2_jax.model.transformer_block import Block, BlockInputs


class MTPLayer(Layer):
    """Joins state and next embedding, runs one block, and norms; the head is the trunk's own."""

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "B T D"], following: Float[Array, "B T D"], inputs: BlockInputs
    ) -> tuple[Float[Array, "B T D"], Float[Array, "E"] | None]:
        cfg = self.config
        embed, eps = cfg.embed_dim, cfg.norm_epsilon
        with jax.named_scope("mtp"):
            joined = jnp.concatenate(
                [
                    rms_norm(following, self.scale("enorm", embed), eps),
                    rms_norm(hidden, self.scale("hnorm", embed), eps),
                ],
                axis=-1,
            )
            x = joined @ self.weight("eh_proj", (2 * embed, embed), (None, "embed"), 2 * embed)
            x, (load, _) = Block(cfg, sparse=True, name="block")(x, inputs, None)
            return rms_norm(x, self.scale("norm", embed), eps), load


def next_in_segment(
    tokens: Int[Array, "B T"], segment_ids: Int[Array, "B T"]
) -> tuple[Int[Array, "B T"], Float[Array, "B T"]]:
    """Each token's successor within its segment, and 1.0 where there is one."""
    shifted = jnp.pad(tokens[:, 1:], ((0, 0), (0, 1)))
    same = jnp.pad(segment_ids[:, 1:], ((0, 0), (0, 1))) == segment_ids
    present = (same & (segment_ids > 0)).astype(jnp.float32)
    return jnp.where(present > 0, shifted, 0), present
