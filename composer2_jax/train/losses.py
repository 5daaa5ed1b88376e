"""Losses of phase 1, each an unreduced (total, weight) pair.

Next-token prediction, and self-distillation of the multi-token-prediction layer from the main
head's own distribution (report, section 3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from composer2_jax.core.numerics import WeightedMetric, masked_sum
from composer2_jax.errors import UserError, check_at_least
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Output, Transformer, Variables

Batch = Mapping[
    str, Any
]  # arrays of jax or numpy: tokens, segment_ids, positions, loss_mask, all [B, T]


class Aux(NamedTuple):
    """What a loss reports besides itself; everything here is summed over microbatches."""

    metrics: dict[str, WeightedMetric]
    loads: Float[Array, "L E"] | None = None
    mtp_loads: Float[Array, "E"] | None = None


LossFn = Callable[[Variables, Batch], tuple[WeightedMetric, Aux]]


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights of the terms. The report gives none.

    `next_token` 0 with `mtp` > 0 is the phase that trains the draft layer alone. `z` pulls the
    log-normaliser of the logits to 0.
    """

    next_token: float = 1.0
    mtp: float = 0.0
    z: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(self, 0, "next_token", "mtp", "z")
        if self.next_token == 0 and self.mtp == 0:
            raise UserError("LossConfig: next_token and mtp are both 0, so nothing is trained")


def target_mask(batch: Batch) -> Float[Array, "B T-1"]:
    """1 where position t's next token is a trained target of the same segment."""
    segment_ids = batch["segment_ids"]
    same = (segment_ids[:, 1:] == segment_ids[:, :-1]) & (segment_ids[:, 1:] > 0)
    return batch["loss_mask"][:, 1:] * same.astype(jnp.float32)


def token_logprobs(
    logits: Float[Array, "B T V"], tokens: Int[Array, "B T"]
) -> Float[Array, "B T-1"]:
    """log p(token t+1) at each position t."""
    picked = jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    return picked - jax.nn.logsumexp(logits[:, :-1], axis=-1)


def next_token_loss(logits: Float[Array, "B T V"], batch: Batch) -> WeightedMetric:
    """Cross entropy of the trained targets; never across a segment's border."""
    return WeightedMetric(*masked_sum(-token_logprobs(logits, batch["tokens"]), target_mask(batch)))


def z_loss(logits: Float[Array, "B T V"], batch: Batch) -> WeightedMetric:
    """Squared log-normaliser at the positions that predict trained targets."""
    log_z = jax.nn.logsumexp(logits[:, :-1], axis=-1)
    return WeightedMetric(*masked_sum(log_z * log_z, target_mask(batch)))


def draft_mask(batch: Batch) -> Float[Array, "B T-1"]:
    """1 where position t drafts a trained target: t, t+1 and t+2 lie in one segment."""
    within = target_mask({**batch, "loss_mask": jnp.ones_like(batch["loss_mask"])})
    ahead = jnp.pad(target_mask(batch)[:, 1:], ((0, 0), (0, 1)))
    return within * ahead


def mtp_distillation_loss(output: Output, batch: Batch) -> WeightedMetric:
    """KL from the main head to the draft, summed over the drafted positions.

    The draft at t has seen token t+1 and guesses token t+2, as the main head does at t+1: that is
    its target, soft and without a gradient. A further shift would be a bug.
    """
    assert output.mtp_logits is not None, "the forward pass was made without mtp=True"
    target = jax.lax.stop_gradient(jax.nn.log_softmax(output.logits[:, 1:], axis=-1))
    draft = jax.nn.log_softmax(output.mtp_logits[:, :-1], axis=-1)
    divergence = jnp.sum(jnp.exp(target) * (target - draft), axis=-1)
    return WeightedMetric(*masked_sum(divergence, draft_mask(batch)))


def make_loss(model: ModelConfig, config: LossConfig) -> LossFn:
    """The weighted sum of the terms.

    All terms share one divisor, the first term's weight, so that a sum over microbatches is exact.
    """
    if config.mtp and not model.num_mtp_layers:
        raise UserError("LossConfig.mtp needs ModelConfig.num_mtp_layers = 1")
    transformer = Transformer(model)

    def loss_fn(variables: Variables, batch: Batch) -> tuple[WeightedMetric, Aux]:
        output = transformer.apply(
            variables,
            batch["tokens"],
            batch["segment_ids"],
            batch["positions"],
            mtp=config.mtp > 0,
        )
        terms = {"loss": (config.next_token, next_token_loss(output.logits, batch))}
        if config.mtp:
            terms["mtp_kl"] = (config.mtp, mtp_distillation_loss(output, batch))
        if config.z:
            terms["z_loss"] = (config.z, z_loss(output.logits, batch))
        divisor = next(term.weight for factor, term in terms.values() if factor)
        parts = [factor * term.total for factor, term in terms.values() if factor]
        total = jnp.sum(jnp.stack(parts))
        metrics = {name: term for name, (_, term) in terms.items()}
        return WeightedMetric(total, divisor), Aux(metrics, output.loads, output.mtp_loads)

    return loss_fn
