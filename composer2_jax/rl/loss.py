"""The loss of one packed RL batch, in the form that `train.step` takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from composer2_jax.core.numerics import WeightedMetric, masked_sum
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Transformer, Variables
from composer2_jax.rl.objective import policy_gradient_loss, truncated_ratio
from composer2_jax.train.losses import Aux, Batch, LossFn

# Edges of the histogram of |log pi_train - log pi_sampler|; counts add up over microbatches, so
# that a quantile of the whole batch can be read off.
MISMATCH_EDGES = np.concatenate([[0.0], np.logspace(-8, 2, 101)])


def make_rl_loss(model: ModelConfig, ratio_cap: float | None = None) -> LossFn:
    """Policy gradient over the sampled tokens, whose flat places are `batch["targets"]` [N].

    Their log-probabilities are computed there only, since most tokens of an episode are the
    environment's. Each advantage is weighed by its token's importance ratio, at most
    `ratio_cap` (None: not at all), whose mean is logged. `batch["normalizer"]` [B] sums to the
    constant Z. The routers' selection biases are left alone: no loads are returned. Logged too are
    the gaps to the sampler's log-probabilities: `mismatch` at equal weights, which is an error of
    numerics, and `drift` from older ones.
    """
    transformer = Transformer(model)

    def loss_fn(variables: Variables, batch: Batch) -> tuple[WeightedMetric, Aux]:
        targets = batch["targets"]
        tokens, mask, stale, advantages, sampled = (
            batch[name].ravel()[targets]
            for name in ("tokens", "loss_mask", "stale", "advantages", "sampler_logprobs")
        )
        output = transformer.apply(
            variables,
            batch["tokens"],
            batch["segment_ids"],
            batch["positions"],
            logits_at=targets - 1,
        )
        all_logprobs = jax.nn.log_softmax(output.logits, axis=-1)
        logprobs = jnp.take_along_axis(all_logprobs, tokens[:, None], axis=-1)[:, 0]
        ratios = truncated_ratio(logprobs, sampled, ratio_cap)
        loss = policy_gradient_loss(logprobs, advantages * ratios, mask, batch["normalizer"].sum())
        frozen = jax.lax.stop_gradient(all_logprobs)
        entropy = -(jnp.exp(frozen) * frozen).sum(-1)
        gap = jnp.abs(jax.lax.stop_gradient(logprobs) - sampled)
        current = mask * (stale == 0)
        metrics = {
            "loss": loss,
            "ratio_mean": WeightedMetric(*masked_sum(ratios, mask)),
            "entropy": WeightedMetric(*masked_sum(entropy, mask)),
            "mismatch_mean": WeightedMetric(*masked_sum(gap, current)),
            "mismatch_histogram": WeightedMetric(_histogram(gap, current), jnp.ones(())),
            "drift_mean": WeightedMetric(*masked_sum(gap, mask - current)),
        }
        return loss, Aux(metrics)

    return loss_fn


def mismatch_quantile(histogram: Float[np.ndarray, "bins"], quantile: float) -> float:
    """Upper edge of the bin that holds the quantile of the absolute log-probability gap."""
    cumulative = np.cumsum(histogram)
    if cumulative[-1] <= 0:
        return 0.0
    place = int(np.searchsorted(cumulative, quantile * cumulative[-1] * (1 - 1e-6)))
    return float(MISMATCH_EDGES[min(place + 1, len(MISMATCH_EDGES) - 1)])


def _histogram(gap: Float[Array, "N"], mask: Float[Array, "N"]) -> Float[Array, "bins"]:
    place = jnp.searchsorted(jnp.asarray(MISMATCH_EDGES, jnp.float32), gap, side="right")
    bins = len(MISMATCH_EDGES) - 1
    return jnp.zeros(bins).at[jnp.clip(place - 1, 0, bins - 1)].add(mask)
