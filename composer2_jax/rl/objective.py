"""The RL objective as small named functions (report, section 4.1; Dr.GRPO).

    A_i = R_i - mean_j R_j                              (no division by the standard deviation)
    L   = -(1/Z) sum_i sum_t m_it A_i log pi(a_it)      (Z constant: no length normalisation)

    (with a ratio cap, A_i is weighed by min(pi / mu, cap) of the token)

Off-policy drift is held by the system (fast weight sync, bounded staleness), as in the report,
which names no importance ratio; `truncated_ratio` is for runs whose steps are large. The report
gives neither Z nor the place of the KL term; the choices here are Z = group size x groups x a
constant token count, and KL as a reward.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from composer2_jax.core.numerics import WeightedMetric


def group_advantages(
    rewards: Float[np.ndarray, "G"], counted: Float[np.ndarray, "G"] | None = None
) -> Float[np.ndarray, "G"]:
    """Reward less the mean of its group, in float64.

    Members with `counted` 0 (infrastructure failures) neither vote in the mean nor learn. Exactly
    equal rewards give exactly 0, so a uniform group cannot move the weights by rounding.
    """
    rewards = np.asarray(rewards, np.float64)
    voters = np.ones(len(rewards), bool) if counted is None else np.asarray(counted) > 0
    if not voters.any() or np.ptp(rewards[voters]) == 0.0:
        return np.zeros_like(rewards)
    return np.where(voters, rewards - rewards[voters].mean(), 0.0)


def policy_gradient_loss(
    logprobs: Float[Array, "*tokens"],
    advantages: Float[Array, "*tokens"],
    mask: Float[Array, "*tokens"],
    normalizer: float | Float[Array, ""],
) -> WeightedMetric:
    """-(1/Z) sum m A log pi with Z constant: a token's push does not depend on its batch."""
    total = -jnp.where(mask > 0, advantages * logprobs, 0.0).sum()
    return WeightedMetric(total, jnp.asarray(normalizer, jnp.float32))


def truncated_ratio(
    logprobs: Float[Array, "*tokens"],
    sampler_logprobs: Float[Array, "*tokens"],
    cap: float | None,
) -> Float[Array, "*tokens"]:
    """min(pi / mu, cap), without gradient: how much a token of an older policy mu still counts.

    Without it a token that has become unlikely since it was sampled goes on being pushed down with
    full force, and other logits with it. None: every token counts fully.
    """
    if cap is None:
        return jnp.ones_like(logprobs)
    return jnp.minimum(jnp.exp(jax.lax.stop_gradient(logprobs) - sampler_logprobs), cap)


def k1(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """KL(q||p) estimate -log r with r = p/q, x ~ q: unbiased, the report's choice."""
    return -log_ratio


def k2(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """(log r)^2 / 2: biased, low variance near the policy."""
    return 0.5 * log_ratio**2


def k3(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """(r - 1) - log r: unbiased, but its variance explodes once p and q drift apart."""
    return jnp.expm1(log_ratio) - log_ratio


def kl_adjusted_advantages(
    advantages: Float[Array, "*tokens"],
    logprobs: Float[Array, "*tokens"],
    reference_logprobs: Float[Array, "*tokens"],
    coefficient: float,
) -> Float[Array, "*tokens"]:
    """Puts -beta k1 into the per-token advantage (score-function form).

    As a plain loss k1 would have zero expected gradient on-policy, since E_q[grad log q] = 0.
    """
    penalty = k1(jax.lax.stop_gradient(reference_logprobs - logprobs))
    return advantages - coefficient * penalty
