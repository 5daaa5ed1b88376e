"""The truncated importance ratio: unbiased where it is not cut, silent about vanished tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.rl.objective import policy_gradient_loss, truncated_ratio

LOGITS = jnp.array([0.3, -0.2, 0.9])
SAMPLER = jax.nn.log_softmax(jnp.array([-0.4, 0.5, 0.1]))
REWARDS = jnp.array([1.0, 0.0, -2.0])


def expected_gradient(cap: float | None) -> np.ndarray:
    """Over all three actions, each weighed by how often the sampler draws it."""

    def loss(logits):
        logprobs = jax.nn.log_softmax(logits)
        advantages = REWARDS * truncated_ratio(logprobs, SAMPLER, cap) * jnp.exp(SAMPLER)
        return policy_gradient_loss(logprobs, advantages, jnp.ones(3), 1.0).mean()

    return np.asarray(jax.jit(jax.grad(loss))(LOGITS))


def test_off_policy_samples_give_the_gradient_of_the_current_policys_reward() -> None:
    wanted = jax.grad(lambda logits: -(jax.nn.softmax(logits) * REWARDS).sum())(LOGITS)
    np.testing.assert_allclose(expected_gradient(1e9), wanted, rtol=1e-5)
    assert np.abs(expected_gradient(None) - np.asarray(wanted)).max() > 0.05


def test_the_ratio_is_cut_at_its_cap_and_is_one_without() -> None:
    logprobs, sampler = jnp.log(jnp.array([0.4, 0.1, 0.2])), jnp.log(jnp.array([0.1, 0.4, 0.2]))
    np.testing.assert_allclose(truncated_ratio(logprobs, sampler, 2.0), [2.0, 0.25, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(truncated_ratio(logprobs, sampler, None), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(("cap", "bounded"), [(1.0, True), (None, False)])
def test_a_vanished_token_is_not_pushed_down_for_ever(cap: float | None, bounded: bool) -> None:
    def push(gap: float) -> float:
        def loss(logit):
            logprobs = jax.nn.log_softmax(jnp.stack([logit, jnp.zeros(())]))[:1]
            advantages = -truncated_ratio(logprobs, jnp.log(jnp.array([0.5])), cap)
            return policy_gradient_loss(logprobs, advantages, jnp.ones(1), 1.0).mean()

        return float(jax.jit(jax.grad(loss))(jnp.float32(gap)))

    assert (push(-12.0) < 1e-4 * push(0.0)) == bounded
