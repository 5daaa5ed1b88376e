"""Multi-head latent attention: one parameter set, two views of the same function.

Training *expands* the key-value latent into per-head keys and values. Decoding *absorbs* the
up-projection into the query and the output instead, so that one small latent per token is all the
cache holds (DeepSeek-V2, section 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from composer2_jax.model import rope
from composer2_jax.model.layers import Layer, rms_norm

MASKED = -1e30


class LatentCache(NamedTuple):
    """What attention remembers of a token: the normalised latent and the shared rotary key."""

    latent: Float[Array, "B S R"]
    rope_key: Float[Array, "B S K"]


class MultiHeadLatentAttention(Layer):
    """Causal attention over packed segments (`__call__`) or over a latent cache (`extend`)."""

    def setup(self) -> None:
        mla, embed, heads = self.config.mla, self.config.embed_dim, self.config.num_heads
        qk_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        rank = mla.kv_lora_rank
        if mla.q_lora_rank is None:
            self.q_proj = self.weight(
                "q_proj", (embed, heads, qk_dim), ("embed", "heads", "head"), embed
            )
        else:
            self.q_a_proj = self.weight(
                "q_a_proj", (embed, mla.q_lora_rank), ("embed", "latent"), embed
            )
            self.q_a_norm = self.scale("q_a_norm", mla.q_lora_rank)
            self.q_b_proj = self.weight(
                "q_b_proj",
                (mla.q_lora_rank, heads, qk_dim),
                ("latent", "heads", "head"),
                mla.q_lora_rank,
            )
        self.kv_a_proj = self.weight(
            "kv_a_proj", (embed, rank + mla.qk_rope_head_dim), ("embed", "latent"), embed
        )
        self.kv_a_norm = self.scale("kv_a_norm", rank)
        self.kv_b_proj = self.weight(
            "kv_b_proj",
            (rank, heads, mla.qk_nope_head_dim + mla.v_head_dim),
            ("latent", "heads", "head"),
            rank,
        )
        self.o_proj = self.weight(
            "o_proj",
            (heads, mla.v_head_dim, embed),
            ("heads", "head", "embed"),
            heads * mla.v_head_dim,
        )

    def __call__(
        self,
        x: Float[Array, "B T D"],
        segment_ids: Int[Array, "B T"],
        positions: Int[Array, "B T"],
    ) -> Float[Array, "B T D"]:
        """Expanded view. Tokens see earlier tokens of their own segment only."""
        nope = self.config.mla.qk_nope_head_dim
        with jax.named_scope("mla_expanded"):
            q_nope, q_rope = self._queries(x, positions)
            latent, k_rope = self._latents(x, positions)
            k_nope, value = jnp.split(
                jnp.einsum("btr,rhk->bthk", latent, self.kv_b_proj), [nope], axis=-1
            )
            scores = jnp.einsum("bthk,bshk->bhts", q_nope, k_nope)
            scores += jnp.einsum("bthk,bsk->bhts", q_rope, k_rope)
            probs = self._softmax(scores, _packed_causal_mask(segment_ids)[:, None])
            return jnp.einsum(
                "bthv,hvd->btd", jnp.einsum("bhts,bshv->bthv", probs, value), self.o_proj
            )

    def extend(
        self, x: Float[Array, "B T D"], cache: LatentCache, positions: Int[Array, "B T"]
    ) -> tuple[Float[Array, "B T D"], LatentCache]:
        """Absorbed view: T new tokens a row attend over the cache and over one another.

        Row b's tokens stand at consecutive `positions[b]`; cache places from its first position on
        are masked, so what they hold does not matter. Returns the output and the new tokens' cache
        entries, which the caller stores: reading the cache and writing it stay apart, as a write
        here would copy all of it.
        """
        with jax.named_scope("mla_absorbed"):
            to_key, to_value = jnp.split(
                self.kv_b_proj, [self.config.mla.qk_nope_head_dim], axis=-1
            )
            q_nope, q_rope = self._queries(x, positions)
            query = LatentCache(jnp.einsum("bthk,rhk->bthr", q_nope, to_key), q_rope)
            new = LatentCache(*self._latents(x, positions))
            size = cache.latent.shape[1]
            stored = jnp.arange(size) < positions[:, :1, None]
            causal = positions[:, :, None] >= positions[:, None, :]
            mask = jnp.concatenate(
                [jnp.broadcast_to(stored, (*x.shape[:2], size)), causal], axis=-1
            )
            scores = jnp.concatenate([_scores(query, cache), _scores(query, new)], axis=-1)
            probs = self._softmax(scores, mask[:, None])
            mixed = jnp.einsum("bhts,bsr->bthr", probs[..., :size], cache.latent)
            mixed += jnp.einsum("bhts,bsr->bthr", probs[..., size:], new.latent)
            heads = jnp.einsum("bthr,rhv->bthv", mixed, to_value)
            return jnp.einsum("bthv,hvd->btd", heads, self.o_proj), new

    def _queries(self, x, positions):
        mla = self.config.mla
        if mla.q_lora_rank is None:
            query = jnp.einsum("btd,dhk->bthk", x, self.q_proj)
        else:
            low = rms_norm(x @ self.q_a_proj, self.q_a_norm, self.config.norm_epsilon)
            query = jnp.einsum("btr,rhk->bthk", low, self.q_b_proj)
        q_nope, q_rope = jnp.split(query, [mla.qk_nope_head_dim], axis=-1)
        return q_nope, rope.rotate(q_rope, positions, mla)

    def _latents(self, x, positions):
        mla = self.config.mla
        latent, k_rope = jnp.split(x @ self.kv_a_proj, [mla.kv_lora_rank], axis=-1)
        latent = rms_norm(latent, self.kv_a_norm, self.config.norm_epsilon)
        return latent, rope.rotate(k_rope, positions, mla)

    def _softmax(self, scores: Float[Array, "B H T S"], mask: Bool[Array, "B #H T S"]):
        mla = self.config.mla
        scale = (mla.qk_nope_head_dim + mla.qk_rope_head_dim) ** -0.5
        scale *= rope.softmax_magnitude(mla.yarn)
        wide = jnp.where(mask, scores.astype(jnp.float32) * scale, MASKED)
        return jax.nn.softmax(wide, axis=-1).astype(scores.dtype)


def _packed_causal_mask(segment_ids: Int[Array, "B T"]) -> Bool[Array, "B T T"]:
    length = segment_ids.shape[1]
    causal = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    return causal & (segment_ids[:, :, None] == segment_ids[:, None, :])


def _scores(query: LatentCache, keys: LatentCache) -> Float[Array, "B H T S"]:
    """Unscaled scores of absorbed queries ([B T H R] and [B T H K]) against cache entries."""
    scores = jnp.einsum("bthr,bsr->bhts", query.latent, keys.latent)
    return scores + jnp.einsum("bthk,bsk->bhts", query.rope_key, keys.rope_key)
