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
            query = jnp.concatenate(self._queries(x, positions), axis=-1)
            latent, k_rope = self._latents(x, positions)
            k_nope, value = jnp.split(
                jnp.einsum("btr,rhk->bthk", latent, self.kv_b_proj), [nope], axis=-1
            )
            shared = jnp.broadcast_to(k_rope[:, :, None], (*k_nope.shape[:3], k_rope.shape[-1]))
            key = jnp.concatenate([k_nope, shared], axis=-1)
            mixed = self._attend(
                _heads_first(query), _heads_first(key), _heads_first(value), segment_ids
            )
            return jnp.einsum("bthv,hvd->btd", _heads_first(mixed), self.o_proj)

    def extend(
        self, x: Float[Array, "B T D"], cache: LatentCache, positions: Int[Array, "B T"]
    ) -> tuple[Float[Array, "B T D"], LatentCache]:
        """Absorbed view: T new tokens a row attend over the cache and over one another.

        Row b's tokens stand at consecutive `positions[b]`; cache places from its first position on
        are masked, so what they hold does not matter as long as it is finite. Returns the output
        and the new tokens' cache entries, which the caller stores: reading the cache and writing it
        stay apart, as a write here would copy all of it.
        """
        with jax.named_scope("mla_absorbed"):
            to_key, to_value = jnp.split(
                self.kv_b_proj, [self.config.mla.qk_nope_head_dim], axis=-1
            )
            q_nope, q_rope = self._queries(x, positions)
            query = LatentCache(jnp.einsum("bthk,rhk->bhtr", q_nope, to_key), _heads_first(q_rope))
            new = LatentCache(*self._latents(x, positions))
            size = cache.latent.shape[1]
            stored = jnp.arange(size) < positions[:, :1, None]
            causal = positions[:, :, None] >= positions[:, None, :]
            mask = jnp.concatenate(
                [jnp.broadcast_to(stored, (*x.shape[:2], size)), causal], axis=-1
            )
            scores = jnp.concatenate([_scores(query, cache), _scores(query, new)], axis=-1)
            weights, total = self._softmax_parts(scores, mask[:, None])
            mixed = _per_row(weights[..., :size], cache.latent)
            mixed += _per_row(weights[..., size:], new.latent)
            heads = jnp.einsum("bhtr,rhv->bthv", mixed / total, to_value)
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

    def _attend(self, query, key, value, segment_ids):
        """Block by block of queries; no block reads the keys after its last query, so that four
        blocks do five eighths of the work of one."""
        length = segment_ids.shape[1]
        blocks = self.config.query_blocks if length % self.config.query_blocks == 0 else 1
        mask = _packed_causal_mask(segment_ids)[:, None]
        mixed = []
        for end in range(length // blocks, length + 1, length // blocks):
            block = slice(end - length // blocks, end)
            scores = query[:, :, block] @ key[:, :, :end].swapaxes(2, 3)
            weights, total = self._softmax_parts(scores, mask[:, :, block, :end])
            mixed.append((weights @ value[:, :, :end]) / total)
        return jnp.concatenate(mixed, axis=2)

    def _softmax_parts(
        self, scores: Float[Array, "B H T S"], mask: Bool[Array, "B #H T S"]
    ) -> tuple[Float[Array, "B H T S"], Float[Array, "B H T 1"]]:
        """Unnormalised weights and their sum: dividing after the values are mixed touches a
        [T, K] array instead of a [T, S] one."""
        mla = self.config.mla
        scale = (mla.qk_nope_head_dim + mla.qk_rope_head_dim) ** -0.5
        scale *= rope.softmax_magnitude(mla.yarn)
        wide = jnp.where(mask, scores.astype(jnp.float32) * scale, MASKED)
        peak = jax.lax.stop_gradient(wide.max(axis=-1, keepdims=True))
        weights = jnp.exp(wide - peak)
        total = weights.sum(axis=-1, keepdims=True)
        return weights.astype(scores.dtype), total.astype(scores.dtype)


def _packed_causal_mask(segment_ids: Int[Array, "B T"]) -> Bool[Array, "B T T"]:
    length = segment_ids.shape[1]
    causal = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    return causal & (segment_ids[:, :, None] == segment_ids[:, None, :])


def _scores(query: LatentCache, keys: LatentCache) -> Float[Array, "B H T S"]:
    """Unscaled scores of absorbed queries ([B H T R] and [B H T K]) against cache entries."""
    scores = _per_row(query.latent, keys.latent.swapaxes(1, 2))
    return scores + _per_row(query.rope_key, keys.rope_key.swapaxes(1, 2))


def _per_row(a: Float[Array, "B H T M"], b: Float[Array, "B M N"]) -> Float[Array, "B H T N"]:
    """One matmul a row with heads and tokens as one axis: several times faster than leaving the
    layout of four axes to the compiler."""
    flat = a.reshape(a.shape[0], -1, a.shape[-1]) @ b
    return flat.reshape(*a.shape[:-1], b.shape[-1])


def _heads_first(x: Float[Array, "B T H K"]) -> Float[Array, "B H T K"]:
    """Swaps heads and tokens, there or back."""
    return x.swapaxes(1, 2)
