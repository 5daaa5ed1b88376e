"""Faults of baselines and normalisers that other trainers had: members that should not vote do,
tiny spreads blow up, uniform groups move the weights, and empty masks divide by zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.rl.batching import learning_members, pack_rows
from composer2_jax.rl.learner import group_statistics
from composer2_jax.rl.objective import (
    group_advantages,
    kl_adjusted_advantages,
    policy_gradient_loss,
)
from composer2_jax.rl.trajectory import Group
from tests.rl.samples import group, trajectory


@pytest.mark.parametrize(
    ("rewards", "counted", "advantages"),
    [
        # A masked member does not vote: with its 1 the mean would be 1/2.
        ([1, 1, 0, 0], [1, 0, 1, 1], [2 / 3, 0, -1 / 3, -1 / 3]),
        ([1, 1, 0, 0], [1, 1, 1, 1], [0.5, 0.5, -0.5, -0.5]),
        ([1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]),
        ([1, 0], [0, 0], [0, 0]),
        # No division by the standard deviation, and no leave-one-out.
        ([1, 0, 0, 0], None, [0.75, -0.25, -0.25, -0.25]),
        ([0.35] * 7 + [0.95], None, [-0.075] * 7 + [0.525]),
        ([1, 1, 1, 1.001], None, [-0.00025] * 3 + [0.00075]),
    ],
)
def test_advantages_are_the_reward_less_the_mean_of_those_that_vote(
    rewards: list[float], counted: list[float] | None, advantages: list[float]
) -> None:
    votes = None if counted is None else np.array(counted, float)
    found = group_advantages(np.array(rewards, float), votes)
    np.testing.assert_allclose(found, advantages, atol=1e-12)


@pytest.mark.parametrize("reward", [1.0, 0.1, 1 / 3, 0.0, -0.7, 1e6 + 0.1])
def test_equal_rewards_give_exactly_no_advantage(reward: float) -> None:
    """A mean of seven times 0.1 is not 0.1 in floating point; a rest of 1e-17 would still train."""
    for size in (1, 3, 7, 8):
        assert (group_advantages(np.full(size, reward)) == 0.0).all()


def test_a_uniform_group_trains_nothing_and_is_counted_as_such() -> None:
    uniform, mixed = group([1.0] * 4, 0), group([1.0, 0.0, 0.0, 1.0], 1)
    assert learning_members([uniform]) == []
    assert len(learning_members([uniform, mixed])) == 4
    assert group_statistics([uniform, mixed], 0)["mixed_groups"] == 0.5
    # One answer and a lost one say nothing about each other.
    assert group_statistics([group([1.0, None])], 0)["mixed_groups"] == 0.0


def gradient(advantages: jax.Array, mask: jax.Array) -> tuple[float, np.ndarray]:
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5)), jnp.float32)

    def loss(logits: jax.Array) -> jax.Array:
        logprobs = jax.nn.log_softmax(logits)[..., 0]
        return policy_gradient_loss(logprobs, advantages, mask, 8.0).mean()

    value, grads = jax.value_and_grad(loss)(logits)
    return float(value), np.asarray(grads)


def test_with_equal_rewards_only_the_kl_term_has_a_gradient() -> None:
    none, mask = jnp.zeros((2, 3)), jnp.ones((2, 3))
    assert gradient(none, mask) == (0.0, pytest.approx(np.zeros((2, 3, 5)), abs=0.0))
    logprobs, reference = jnp.full((2, 3), -1.0), jnp.full((2, 3), -1.5)
    unchanged = kl_adjusted_advantages(none, logprobs, reference, 0.0)
    assert (np.asarray(unchanged) == 0.0).all()
    charged = kl_adjusted_advantages(none, logprobs, reference, 0.1)
    # log r = ref - log pi = -0.5, so k1 = 0.5 and the charge is 0.05.
    np.testing.assert_allclose(charged, -0.05, atol=1e-7)
    assert np.abs(gradient(charged, mask)[1]).max() > 1e-4


def test_an_all_masked_batch_has_no_loss_and_no_gradient() -> None:
    value, grads = gradient(jnp.ones((2, 3)), jnp.zeros((2, 3)))
    assert value == 0.0 and (grads == 0.0).all()


def test_the_loss_is_divided_by_a_constant_and_not_by_the_tokens() -> None:
    """Twice the tokens push twice as hard: a mean over tokens would give both the same."""
    advantages = jnp.ones((2, 3))
    one = gradient(advantages, jnp.asarray([[1, 0, 0], [0, 0, 0]]))[1]
    two = gradient(advantages, jnp.asarray([[1, 1, 0], [0, 0, 0]]))[1]
    np.testing.assert_allclose(two[0, 0], one[0, 0], rtol=1e-6)
    assert np.abs(two[0, 1]).max() > 0.0


def test_the_reward_of_an_empty_response_reaches_no_token_and_is_still_logged() -> None:
    """Written at index -1 it would land on the last pad, or on a neighbour's last token."""
    empty = trajectory(3, reward=10.0, sampled=[0, 0, 0])
    other = trajectory(4, reward=0.0, seed=1)
    groups = [Group(0, "t", (empty, other))]
    (batch,) = pack_rows(learning_members(groups), (9,), 9, 1.0, 0)
    trained = batch["loss_mask"] == 1
    assert trained.sum() == 3
    assert set(batch["advantages"][trained].tolist()) == {-5.0}
    assert group_statistics(groups, 0)["reward_mean"] == 5.0
