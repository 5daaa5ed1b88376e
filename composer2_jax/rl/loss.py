"""The loss of one packed RL batch, in the form that `train.step` takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from composer2_jax.core.numerics import WeightedMetric, masked_sum
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Transformer, Variables
from composer2_jax.rl.objective import policy_gradient_loss, token_logprobs
from composer2_jax.train.losses import Aux, Batch, LossFn

# Edges of the histogram of |log pi_train - log pi_sampler|; counts add up over microbatches, so
# that a quantile of the whole batch can be read off.
MISMATCH_EDGES = np.concatenate([[0.0], np.logspace(-8, 2, 101)])


def make_rl_loss(model: ModelConfig) -> LossFn:
    """Policy gradient over sampled tokens; `batch["normalizer"]` [B] sums to the constant Z.

    The routers' selection biases are left alone: no loads are returned.
    """
    transformer = Transformer(model)

    def loss_fn(variables: Variables, batch: Batch) -> tuple[WeightedMetric, Aux]:
        output = transformer.apply(
            variables, batch["tokens"], batch["segment_ids"], batch["positions"]
        )
        mask = batch["loss_mask"].astype(jnp.float32)
        logprobs = token_logprobs(output.logits, batch["tokens"])
        loss = policy_gradient_loss(
            logprobs, batch["advantages"], mask, batch["normalizer"].sum()
        )
        gap = jnp.abs(jax.lax.stop_gradient(logprobs) - batch["sampler_logprobs"])
        metrics = {
            "loss": loss,
            "entropy": WeightedMetric(*masked_sum(_entropy(output.logits), mask)),
            "mismatch_mean": WeightedMetric(*masked_sum(gap, mask)),
            "mismatch_histogram": WeightedMetric(_histogram(gap, mask), mask.sum()),
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


def _entropy(logits: Float[Array, "B T V"]) -> Float[Array, "B T"]:
    """Entropy of the distribution that each token was drawn from, aligned with the tokens."""
    logits = jax.lax.stop_gradient(logits[:, :-1])
    logprobs = jax.nn.log_softmax(logits, axis=-1)
    return jnp.pad(-(jnp.exp(logprobs) * logprobs).sum(-1), ((0, 0), (1, 0)))


def _histogram(gap: Float[Array, "B T"], mask: Float[Array, "B T"]) -> Float[Array, "bins"]:
    place = jnp.searchsorted(jnp.asarray(MISMATCH_EDGES, jnp.float32), gap.ravel(), side="right")
    bins = len(MISMATCH_EDGES) - 1
    return jnp.zeros(bins).at[jnp.clip(place - 1, 0, bins - 1)].add(mask.ravel())
