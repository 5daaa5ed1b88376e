"""A failure of the machinery is neither a reward of 0 nor a reason to lose a group; a broken tool
call of the agent's is no failure of the machinery.
"""

import pytest

from composer2_jax.envs.fleet import InfraError
from composer2_jax.rl.actor import INFRA_RETRIES
from composer2_jax.rl.batching import learning_members
from composer2_jax.rl.learner import group_statistics
from composer2_jax.rl.scheduler import Schedule
from composer2_jax.rl.trajectory import Group
from composer2_jax.sampler.engine import Sequence
from tests.rl.test_actor import CODEC, running
from tests.sampler.samples import FakeFleet, broken

ONE = Schedule(1, 1, 0, seed=0)


def good(sequence: Sequence, fed: list[int]) -> list[int]:
    return CODEC.encode("<|finish|>good<|end|>")


def one_group(fleet: FakeFleet, policy=good, **engine: int) -> Group:
    with running(policy, fleet, ONE, **engine) as run:
        (group,) = run.take(1)
        assert run.nothing_comes()
    assert not fleet.open
    return group


@pytest.mark.parametrize("verb", ["reset", "step", "truncate"])
def test_a_failed_episode_is_run_again(verb: str) -> None:
    """A sandbox that cannot be made, a tool call that the disk refuses, a grader that times out."""
    # Without room for its answer an episode is truncated.
    room = {"max_length": 45} if verb == "truncate" else {}

    def looks(sequence: Sequence, fed: list[int]) -> list[int]:
        return CODEC.encode("<|search|>good<|end|>")

    fleet = FakeFleet(**{verb: broken(INFRA_RETRIES)})
    group = one_group(fleet, looks if verb == "truncate" else good, **room)
    assert fleet.started == 2 + INFRA_RETRIES
    assert [member.reward for member in group.members] == [1.0, 1.0]
    assert all(member.counted for member in group.members)
    assert sum(m.statistics["infra_retries"] for m in group.members) == INFRA_RETRIES


def test_an_episode_that_keeps_failing_leaves_its_groups_statistics() -> None:
    def splits(sequence: Sequence, fed: list[int]) -> list[int]:
        return CODEC.encode(f"<|finish|>{'good' if sequence.seed % 2 else 'bad'}<|end|>")

    fleet = FakeFleet(reset=broken(1 + INFRA_RETRIES))
    group = one_group(fleet, splits, slots=1)  # one at a time: the first one meets all failures
    first, second = group.members
    assert not first.counted and second.counted
    assert learning_members([group]) == [], "one that is left has nobody to be better than"
    numbers = group_statistics([group], 0)
    assert numbers["reward_mean"] == second.reward, "a lost episode was taken for a reward of 0"
    assert numbers["infra_failures"] == 1.0


def test_a_broken_tool_call_stays_in_its_group_with_the_reward_it_earned() -> None:
    """Thrown away, it would teach the model to break its calls on hard tasks."""

    def breaks(sequence: Sequence, fed: list[int]) -> list[int]:
        return CODEC.encode(
            "<|edit_file|>x<|end|>" if sequence.seed % 2 else "<|finish|>good<|end|>"
        )

    fleet = FakeFleet(max_turns=3)
    group = one_group(fleet, breaks)
    assert sorted(member.reward for member in group.members) == [0.0, 1.0]
    assert all(member.counted for member in group.members)
    pairs = learning_members([group])
    assert sorted(advantage for _, advantage in pairs) == [-0.5, 0.5]
    worst = next(member for member, advantage in pairs if advantage < 0)
    assert worst.statistics["invalid_calls"] == 3 and sum(worst.mask) > 0


def test_a_fleet_that_is_gone_does_not_hang_the_run() -> None:
    """Every retry fails as well: the group comes, without a member that counts."""
    fleet = FakeFleet(reset=[InfraError("environment worker 0 died")] * 100)
    group = one_group(fleet)
    assert not any(member.counted for member in group.members)
    assert learning_members([group]) == []
    assert fleet.started == 2 * (1 + INFRA_RETRIES)
