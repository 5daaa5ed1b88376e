"""The KL estimators and their place in the objective: exact gradients over three actions, exact
variances for Gaussians (both sides of the report's comparison of k1 and k3).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.rl.objective import k1, k2, k3, kl_adjusted_advantages, policy_gradient_loss

THETA = jnp.asarray([0.2, -0.1, 0.4])
REFERENCE = jnp.log(jnp.full(3, 1 / 3))
TRUE_GRADIENT = [-0.00251119, -0.07688697, 0.07939816]
REVERSED_GRADIENT = [0.00425120, -0.08324456, 0.07899335]  # of KL(reference || policy)

Estimator = Callable[[jax.Array], jax.Array]


def log_policy(theta: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(theta)


def expected(values: jax.Array) -> jax.Array:
    """The mean over actions drawn from the policy; drawing itself has no gradient."""
    return (jax.lax.stop_gradient(jnp.exp(log_policy(THETA))) * values).sum()


def gradient_as_a_loss(estimator: Estimator) -> jax.Array:
    return jax.grad(lambda theta: expected(estimator(REFERENCE - log_policy(theta))))(THETA)


def test_the_worked_example_is_the_papers() -> None:
    probabilities = jnp.exp(log_policy(THETA))
    np.testing.assert_allclose(probabilities, [0.337585, 0.250089, 0.412327], atol=1e-6)
    divergence = expected(log_policy(THETA) - REFERENCE)
    np.testing.assert_allclose(divergence, 0.02011168, atol=1e-7)

    def exact(theta: jax.Array) -> jax.Array:
        return (jnp.exp(log_policy(theta)) * (log_policy(theta) - REFERENCE)).sum()

    np.testing.assert_allclose(jax.grad(exact)(THETA), TRUE_GRADIENT, atol=1e-7)


def test_k1_in_the_advantage_has_the_true_gradient() -> None:
    def loss(theta: jax.Array) -> jax.Array:
        logprobs = log_policy(theta)[None]
        advantages = kl_adjusted_advantages(jnp.zeros((1, 3)), logprobs, REFERENCE[None], 1.0)
        weighted = advantages * jax.lax.stop_gradient(jnp.exp(logprobs))  # the expectation
        return policy_gradient_loss(logprobs, weighted, jnp.ones((1, 3)), 1.0).mean()

    np.testing.assert_allclose(jax.grad(loss)(THETA), TRUE_GRADIENT, atol=1e-7)


def test_the_advantage_itself_is_not_differentiated() -> None:
    charge = jax.grad(
        lambda theta: kl_adjusted_advantages(
            jnp.zeros((1, 3)), log_policy(theta)[None], REFERENCE[None], 1.0
        ).sum()
    )(THETA)
    assert (np.asarray(charge) == 0.0).all()


@pytest.mark.parametrize(
    ("estimator", "gradient"),
    [(k1, [0.0, 0.0, 0.0]), (k2, TRUE_GRADIENT), (k3, REVERSED_GRADIENT)],
)
def test_as_losses_the_estimators_have_other_gradients(
    estimator: Estimator, gradient: list[float]
) -> None:
    """So a plain k1 loss would do nothing, and k3 pulls along the wrong direction of the KL."""
    np.testing.assert_allclose(gradient_as_a_loss(estimator), gradient, atol=1e-7)


@functools.cache
def moments(estimator: Estimator, mu: float) -> tuple[float, float]:
    """Mean and variance over x ~ N(0, 1) for p = N(mu, 1), by quadrature that is exact here."""
    x, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    values = np.asarray(estimator(jnp.asarray(mu * x - mu * mu / 2)), np.float64)
    mean = float((weights * values).sum())
    return mean, float((weights * (values - mean) ** 2).sum())


@pytest.mark.parametrize("mu", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_means_and_variances_for_gaussians(mu: float) -> None:
    square = mu * mu
    assert moments(k1, mu) == pytest.approx((square / 2, square), rel=1e-4)
    assert moments(k2, mu)[0] == pytest.approx(square / 2 + square**2 / 8, rel=1e-4)
    assert moments(k3, mu) == pytest.approx((square / 2, np.exp(square) - 1 - square), rel=1e-3)


def test_k3_is_better_near_the_policy_and_k1_far_from_it() -> None:
    found = {mu: (moments(k1, mu)[1], moments(k3, mu)[1]) for mu in (0.5, 1.0, 1.5, 2.0, 3.0)}
    rounded = {0.5: (0.25, 0.034), 1.0: (1, 0.718), 1.5: (2.25, 6.24), 2.0: (4, 49.6)}
    for mu, pair in rounded.items():
        assert found[mu] == pytest.approx(pair, rel=0.01)
    assert found[3.0] == pytest.approx((9, 8093), rel=0.01)
    # They cross where the KL is about 0.628.
    even = float(np.sqrt(1.25643))
    assert moments(k1, even)[1] == pytest.approx(moments(k3, even)[1], rel=1e-4)
