"""The actor's thread: groups whole and in order, weights as they come, errors handed on, an end."""

import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jax.numpy as jnp
import pytest

from composer2_jax.envs.task import Task
from composer2_jax.rl.actor import Actor, episode_seed
from composer2_jax.rl.rewards import RewardConfig
from composer2_jax.rl.scheduler import Schedule
from composer2_jax.rl.trajectory import Group
from composer2_jax.sampler.engine import Sequence as Live
from composer2_jax.sampler.rollout import RolloutDriver
from composer2_jax.weights.sync import InProcessWeights
from tests.envs.samples import task
from tests.sampler.samples import FakeEngine, FakeFleet, Policy, ToyCodec

CODEC = ToyCodec()
TASKS = [task(id=f"task-{n}") for n in range(8)]
SECONDS = 10.0


def finishes(sequence: Live, fed: list[int]) -> list[int]:
    """Half of all seeds earn the reward."""
    word = "good" if sequence.seed % 2 else "bad"
    return CODEC.encode(f"<|finish|>{word}<|end|>")


class Running:
    """An actor's thread with the learner's ends of its two channels."""

    def __init__(
        self,
        policy: Policy,
        fleet: FakeFleet,
        schedule: Schedule,
        tasks: Sequence[Task] = TASKS,
        places: Sequence[int] | None = None,
        rewards: RewardConfig | None = None,
        **engine: int,
    ):
        self.weights = InProcessWeights()
        self.fleet, self.engine = fleet, FakeEngine(policy, **engine)
        self.driver = RolloutDriver(self.engine, fleet, CODEC, max_turn_tokens=10_000_000)
        self.actor = Actor(
            self.engine,
            self.driver,
            self.weights,
            schedule,
            tasks,
            schedule.missing(0, []) if places is None else places,
            codec=CODEC,
            group_size=2,
            rewards=rewards or RewardConfig(),
        )
        self.publish(0)

    def publish(self, version: int) -> None:
        self.weights.publish(version, {"w": jnp.zeros(1)})
        self.actor.notice()

    def take(self, count: int) -> list[Group]:
        """The next groups, in the order of their places."""
        groups: list[Group] = []
        while len(groups) < count:
            arrived = self.actor.groups.get(timeout=SECONDS)
            if isinstance(arrived, BaseException):
                raise arrived
            groups.append(arrived)
        return sorted(groups, key=lambda group: group.place)

    def nothing_comes(self) -> bool:
        with pytest.raises(queue.Empty):
            self.actor.groups.get(timeout=0.1)
        return True


@contextmanager
def running(*arguments, **keywords) -> Iterator[Running]:
    made = Running(*arguments, **keywords)
    made.actor.start()
    try:
        yield made
    finally:
        began = time.monotonic()
        made.actor.stop()
        assert time.monotonic() - began < 2.0 and not made.actor.is_alive()


def test_each_place_gives_one_whole_group_of_its_prompt() -> None:
    schedule = Schedule(8, 4, 1, seed=3)
    with running(finishes, FakeFleet(), schedule) as run:
        groups = run.take(8)
        assert run.nothing_comes()
    assert [group.place for group in groups] == list(range(8))
    assert [group.task_id for group in groups] == [TASKS[n].id for n in schedule.order()]
    for group in groups:
        seeds = [episode_seed(3, group.place, member) for member in range(2)]
        assert [member.reward for member in group.members] == [float(s % 2) for s in seeds]
        assert all(member.counted for member in group.members)


def test_what_a_restart_already_has_is_not_sampled() -> None:
    with running(finishes, FakeFleet(), Schedule(8, 2, 3, seed=0), places=[3, 6, 7]) as run:
        assert [group.place for group in run.take(3)] == [3, 6, 7]
        assert run.nothing_comes() and run.fleet.started == 6


@pytest.mark.parametrize(("staleness", "first"), [(0, 2), (1, 4)])
def test_prompts_wait_for_weights_that_are_new_enough(staleness: int, first: int) -> None:
    with running(finishes, FakeFleet(), Schedule(8, 2, staleness, seed=0)) as run:
        assert [group.place for group in run.take(first)] == list(range(first))
        assert run.nothing_comes()
        run.publish(1)
        later = run.take(2)
        assert [group.place for group in later] == [first, first + 1]
        assert run.nothing_comes()
    for group in later:
        for member in group.members:
            assert {v for v, on in zip(member.versions, member.mask, strict=True) if on} == {1}


def test_the_oldest_places_go_first_when_slots_are_few() -> None:
    with running(finishes, FakeFleet(), Schedule(8, 8, 0, seed=0), slots=2) as run:
        arrived = [run.actor.groups.get(timeout=SECONDS).place for _ in range(8)]
    assert arrived == list(range(8))


def test_a_group_does_not_wait_for_a_slow_one_before_it() -> None:
    """And the slow one is not thrown away in its favour."""
    fleet = FakeFleet()
    fleet.held = True
    schedule = Schedule(2, 2, 0, seed=0)
    with running(finishes, fleet, schedule) as run:
        while len(fleet.waiting) < 4:
            time.sleep(0.005)
        slow, fleet.waiting = fleet.waiting[:2], fleet.waiting[2:]
        fleet.release()
        assert run.take(1)[0].place == 1
        for answer in slow:
            answer()
        assert run.take(1)[0].place == 0


def test_an_error_reaches_the_learner_with_its_cause() -> None:
    fleet = FakeFleet(step=[RuntimeError("a bug in an environment")])
    with running(finishes, fleet, Schedule(2, 2, 0, seed=0)) as run:
        with pytest.raises(RuntimeError, match="a bug in an environment"):
            run.take(2)


@pytest.mark.parametrize("state", ["waits for weights", "waits for environments", "samples"])
def test_stopping_takes_a_bounded_time(state: str) -> None:
    def endless(sequence: Live, fed: list[int]) -> list[int]:
        return CODEC.encode("<|list_dir|><|end|>")

    fleet = FakeFleet(max_turns=10**9)
    fleet.held = state == "waits for environments"
    policy = endless if state == "samples" else finishes
    with running(policy, fleet, Schedule(4, 2, 0, seed=0)) as run:
        if state == "waits for weights":
            run.take(2)
        else:
            while fleet.started < 4:
                time.sleep(0.005)
    # Leaving the block stops the thread, and fails where that takes long.


def test_a_trajectory_ends_with_its_last_sampled_token_and_fits_a_row() -> None:
    """What an environment answers last has no bound that the engine knows of."""

    def looks(sequence: Live, fed: list[int]) -> list[int]:
        return CODEC.encode("<|list_dir|><|end|>")

    fleet = FakeFleet(max_turns=2)
    fleet.answer = "x" * 500
    schedule = Schedule(1, 1, 0, seed=0)
    for length in (40, 60):
        with running(looks, fleet, schedule, max_length=length) as run:
            (group,) = run.take(1)
        for member in group.members:
            assert len(member.tokens) <= length
            assert member.mask[-1] == 1 and member.tokens[-1] == CODEC.encode("<|end|>")[0]
            assert sum(member.mask) == member.statistics["sampled_tokens"] == 2


def test_an_episode_that_never_sampled_is_an_empty_trajectory() -> None:
    with running(finishes, FakeFleet(), Schedule(1, 1, 0, seed=0), max_length=5) as run:
        (group,) = run.take(1)
    assert all(member.tokens == () and member.counted for member in group.members)


def test_costs_enter_the_reward_as_named_parts() -> None:
    def wrong_then_right(sequence: Live, fed: list[int]) -> list[int]:
        said = CODEC.decode(fed).count("<|assistant|>")
        return CODEC.encode("<|edit_file|>x<|end|>" if said == 1 else "<|finish|>good<|end|>")

    config = RewardConfig(invalid_call=0.1, length=0.001)
    with running(wrong_then_right, FakeFleet(), Schedule(1, 1, 0, seed=0), rewards=config) as run:
        (group,) = run.take(1)
    for member in group.members:
        assert member.components["correct"] == 1.0 and member.components["invalid_call"] == -0.1
        assert member.components["length"] < 0
        assert member.reward == pytest.approx(sum(member.components.values()))


def test_every_episode_of_a_run_has_a_seed_of_its_own() -> None:
    seeds = {episode_seed(7, place, member) for place in range(2000) for member in range(16)}
    assert len(seeds) == 32_000 and 0 <= min(seeds) and max(seeds) < 2**31
    assert episode_seed(7, 3, 2) != episode_seed(8, 3, 2)
