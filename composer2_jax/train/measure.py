"""Held-out perplexity, and how well the draft layer foresees the main head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from composer2_jax.core.numerics import masked_sum
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Output, Transformer, Variables
from composer2_jax.train.losses import Batch, draft_mask, next_token_loss


class Measurement(NamedTuple):
    """None where nothing was measured.

    `acceptance`: the mean over positions of sum_v min(p_v, q_v), the chance that speculative
    sampling keeps a draft. `greedy_agreement`: how often both heads have the same favourite.
    `accepted_run`: the mean number of drafts in a row that agree.
    """

    perplexity: float | None = None
    acceptance: float | None = None
    greedy_agreement: float | None = None
    accepted_run: float | None = None


def measure(
    model: ModelConfig, variables: Variables, batches: Sequence[Batch], *, drafts: bool
) -> Measurement:
    """Measures on held-out batches; `drafts` needs a model with an MTP layer."""
    if not batches:
        return Measurement()
    transformer = Transformer(model)

    @jax.jit
    def sums(variables: Variables, batch: Batch) -> dict[str, Float[Array, ""]]:
        names = ("tokens", "segment_ids", "positions")
        output = transformer.apply(variables, *(batch[name] for name in names), mtp=drafts)
        loss = next_token_loss(output.logits, batch)
        counted = {"nll": loss.total, "targets": loss.weight}
        return counted | (_draft_sums(output, batch) if drafts else {})

    total: dict[str, float] = {}
    for batch in batches:
        for name, value in sums(variables, batch).items():
            total[name] = total.get(name, 0.0) + float(value)
    perplexity = float(np.exp(total["nll"] / total["targets"]))
    if not drafts:
        return Measurement(perplexity)
    return Measurement(
        perplexity,
        total["kept"] / total["drafts"],
        total["agreed"] / total["drafts"],
        total["agreed"] / max(total["runs"], 1.0),
    )


def _draft_sums(output: Output, batch: Batch) -> dict[str, Float[Array, ""]]:
    """Sums over the drafted positions; the draft at t is compared with the main head at t+1."""
    assert output.mtp_logits is not None
    mask = draft_mask(batch)
    main = jax.nn.softmax(output.logits[:, 1:], axis=-1)
    draft = jax.nn.softmax(output.mtp_logits[:, :-1], axis=-1)
    kept, drafts = masked_sum(jnp.minimum(main, draft).sum(-1), mask)
    agree = (main.argmax(-1) == draft.argmax(-1)) * mask
    # A run of agreements ends where one is not followed by another.
    following = jnp.pad(agree[:, 1:], ((0, 0), (0, 1)))
    return {
        "kept": kept,
        "drafts": drafts,
        "agreed": agree.sum(),
        "runs": (agree * (1 - following)).sum(),
    }
