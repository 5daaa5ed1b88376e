"""The reward's parts: the report's length penalty to its table, and costs that are named."""

import math

import numpy as np
import pytest

from composer2_jax.rl.rewards import EffortWeights, RewardConfig, components, length_penalty
from composer2_jax.sampler.records import Effort

SPENT = (1, 10, 100, 1000, 10000)
TABLE = {  # at k = 0.01
    0.0: (1, 10, 100, 1000, 10000),
    0.5: (0.997512, 9.76177, 82.842712, 463.324958, 1809.975124),
    1.0: (0.995033, 9.531018, 69.314718, 239.789527, 461.512052),
    1.5: (0.992562, 9.307482, 58.578644, 139.697731, 180.099256),
    2.0: (0.990099, 9.090909, 50, 90.909091, 99.009901),
}


@pytest.mark.parametrize("q", TABLE)
def test_the_length_penalty_is_the_table(q: float) -> None:
    assert [length_penalty(x, 0.01, q) for x in SPENT] == pytest.approx(TABLE[q], rel=1e-6)


@pytest.mark.parametrize("q", [1 + 1e-6, 1 - 1e-6, 1 + 1e-7, 1 + 1e-12, 1 + 2**-52, 1.0])
def test_the_length_penalty_is_stable_near_one(q: float) -> None:
    """The form as printed divides two roundings here: in single precision it is far off."""
    assert length_penalty(100, 0.01, q) == pytest.approx(69.314718, rel=2e-6)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_the_length_penalty_rises_from_slope_one_and_bends_down(q: float) -> None:
    values = np.array([length_penalty(x, 0.01, q) for x in np.linspace(0, 1000, 101)])
    steps = np.diff(values)
    assert values[0] == 0.0 and (steps > 0).all()
    assert length_penalty(1e-6, 0.01, q) / 1e-6 == pytest.approx(1.0, rel=1e-6)
    assert (np.diff(steps) < 1e-9).all()
    if q > 1:
        assert length_penalty(1e18, 0.01, q) <= 1 / (0.01 * (q - 1)) * (1 + 1e-9)


def test_what_the_penalty_is_not_defined_for_is_refused() -> None:
    for x, k in ((-1.0, 0.01), (1.0, 0.0), (1.0, -1.0)):
        with pytest.raises(ValueError, match="length_penalty needs"):
            length_penalty(x, k, 0.5)


def test_each_quantity_of_the_effort_has_its_weight() -> None:
    effort = Effort(1, 10, 100, 1000, 10_000, 100_000)
    assert EffortWeights(2, 3, 4, 5, 6, 7).of(effort) == 765432
    assert EffortWeights(0, 0, 0, 0, 0, 0).of(effort) == 0


def test_the_reward_is_the_sum_of_named_parts() -> None:
    effort = Effort(tool_calling_tokens=100)
    assert components(1.0, effort, 3, RewardConfig()) == {"correct": 1.0}
    config = RewardConfig(length=0.001, length_q=1.0, invalid_call=0.05)
    parts = components(0.0, effort, 3, config)
    assert parts["correct"] == 0.0
    assert parts["length"] == pytest.approx(-0.001 * 100 * math.log(2))
    assert parts["invalid_call"] == pytest.approx(-0.15)


def test_a_longer_episode_costs_more_and_hard_tasks_feel_it_less() -> None:
    config = RewardConfig(length=0.001)

    def cost(calls: int) -> float:
        return -components(1.0, Effort(tool_calls=calls), 0, config)["length"]

    assert 0 < cost(10) - cost(0) and cost(110) - cost(100) < cost(10) - cost(0)
