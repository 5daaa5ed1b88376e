"""The learner: its numbers, its waiting, and what it refuses. The model's step is a stand-in."""

import json
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.errors import UserError
from composer2_jax.optim.adamw import OptimizerConfig
from composer2_jax.rl import learner as module
from composer2_jax.rl.learner import Learner, ReinforceConfig, group_statistics, make_schedule
from composer2_jax.rl.loss import MISMATCH_EDGES
from composer2_jax.rl.trajectory import Group
from tests.rl.samples import group
from tests.sampler.samples import MODEL


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs, nothing is tidied up."""


class Arrivals(queue.SimpleQueue[Group | BaseException]):
    """Where a real queue would wait for ever, the process is killed."""

    def get(self, block: bool = True, timeout: float | None = None) -> Group | BaseException:
        if block and self.empty():
            raise Killed
        return super().get(block, timeout)


class FakeActor:
    """Hands over what it was given."""

    def __init__(self, *arrivals: Group | BaseException):
        self.groups = Arrivals()
        for arrival in arrivals:
            self.groups.put(arrival)
        self.noticed = 0

    def notice(self) -> None:
        self.noticed += 1


def counting_step(*_: Any) -> Any:
    """A step whose weights count how often each token's trajectory has been trained on."""

    def step(state: Any, pieces: Sequence[dict[str, np.ndarray]]) -> Any:
        seen = np.zeros(state.params["seen"].shape, np.float32)
        for piece in pieces:
            firsts = (piece["positions"] == 0) & (piece["segment_ids"] > 0)
            np.add.at(seen, piece["tokens"][firsts], 1.0)
        metrics = {
            "objective": jnp.zeros(()),
            "entropy": jnp.ones(()),
            "tokens": jnp.ones(()),
            "mismatch_mean": jnp.zeros(()),
            "mismatch_histogram": jnp.zeros(len(MISMATCH_EDGES) - 1),
            "skipped": jnp.zeros(()),
        }
        return state.replace(
            step=state.step + 1, params={"seen": state.params["seen"] + seen}
        ), metrics

    return step


def marked(place: int, version: int = 0) -> Group:
    """A group whose two members begin with the token 1 + place and learn opposite ways."""
    made = group([1.0, 0.0], place, version)
    members = [
        type(member)(**{**vars(member), "tokens": (1 + place, *member.tokens[1:])})
        for member in made.members
    ]
    return Group(place, made.task_id, tuple(members))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's directory; its step is the stand-in."""
    monkeypatch.setattr(module, "make_streamed_step", counting_step)
    (tmp_path / "rl").mkdir()
    return tmp_path / "rl"


def opened(workdir: Path, prompts: int = 8, **config: Any) -> Learner:
    settings = ReinforceConfig(groups_per_update=2, group_size=2, **config)
    schedule = make_schedule(prompts, settings, seed=0)
    weights = {"params": {"seen": jnp.zeros(64)}, "router": {"bias": jnp.zeros(2)}}
    return Learner(workdir, weights, MODEL, OptimizerConfig(), settings, schedule)


def trained(learner: Learner) -> list[int]:
    """How often each place has entered the weights; every group has two members."""
    seen = np.asarray(learner._state.params["seen"])[1:9]
    assert (seen % 2 == 0).all()
    return (seen / 2).astype(int).tolist()


def logged(workdir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_updates_train_in_schedule_order_whatever_the_order_of_arrival(workdir: Path) -> None:
    learner = opened(workdir)
    actor = FakeActor(*(marked(place) for place in (5, 0, 7, 2, 1, 3, 6, 4)))
    result = learner.run(actor)
    learner.close()
    assert result["updates"] == 4 and trained(learner) == [1] * 8
    assert actor.noticed == 4
    newest = learner.weights.newer_than(-1)
    assert newest is not None and newest.version == 4
    lines = logged(workdir)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    # All were sampled with the first weights, so each update is one step staler than the last.
    assert [line["staleness_max"] for line in lines] == [0, 1, 2, 3]
    assert {line["reward_mean"] for line in lines} == {0.5}


@pytest.mark.parametrize(("mixed_only", "expected"), [(False, [1, 1]), (True, [1, 0])])
def test_groups_that_differ_in_costs_alone_may_be_left_out(
    workdir: Path, mixed_only: bool, expected: list[int]
) -> None:
    learner = opened(workdir, prompts=2, mixed_groups_only=mixed_only)
    unsolved = marked(1)
    alike = [
        type(member)(**{**vars(member), "components": {"correct": 0.0, "length": member.reward}})
        for member in unsolved.members
    ]
    result = learner.run(FakeActor(marked(0), Group(1, unsolved.task_id, tuple(alike))))
    learner.close()
    assert result["updates"] == 1 and trained(learner)[:2] == expected
    assert logged(workdir)[0]["mixed_groups"] == 0.5


def test_the_loss_has_the_cap_that_the_config_names(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = []
    monkeypatch.setattr(module, "make_rl_loss", lambda model, cap: caps.append(cap))
    opened(workdir, ratio_cap=0.75).close()
    assert caps == [0.75]


def test_the_actors_error_ends_the_run(workdir: Path) -> None:
    learner = opened(workdir)
    with pytest.raises(RuntimeError, match="a bug"):
        learner.run(FakeActor(marked(0), RuntimeError("a bug")))
    learner.close()
    assert trained(learner) == [0] * 8


def test_a_group_that_arrives_twice_is_a_bug_and_not_trained_twice(workdir: Path) -> None:
    learner = opened(workdir)
    with pytest.raises(Exception, match="UNIQUE"):
        learner.run(FakeActor(marked(0), marked(0), marked(1)))
    learner.close()


def test_a_finished_run_goes_on_to_nothing(workdir: Path) -> None:
    first = opened(workdir, prompts=2)
    first.run(FakeActor(marked(0), marked(1)))
    first.close()
    again = opened(workdir, prompts=2)
    assert again.update == 1 and again.missing_places() == []
    again.run(FakeActor())
    again.close()
    assert trained(again)[:2] == [1, 1]


def test_too_few_tasks_are_one_clear_line() -> None:
    with pytest.raises(UserError, match=r"updates=3 needs 6 tasks, but .* holds 5"):
        make_schedule(5, ReinforceConfig(updates=3, groups_per_update=2), seed=0)
    with pytest.raises(UserError, match="fewer than one update needs"):
        make_schedule(1, ReinforceConfig(groups_per_update=2), seed=0)
    assert make_schedule(5, ReinforceConfig(groups_per_update=2), seed=0).num_updates == 2
    assert make_schedule(5, ReinforceConfig(updates=1, groups_per_update=2), 0).num_updates == 1


def test_statistics_are_means_over_the_members_that_count() -> None:
    numbers = group_statistics([group([1.0, 0.0], 0, 3), group([1.0, None], 1, 5)], update=6)
    assert numbers["reward_mean"] == pytest.approx(2 / 3)
    assert numbers["reward/correct"] == pytest.approx(2 / 3)
    assert numbers["mixed_groups"] == 0.5
    assert numbers["infra_failures"] == 1.0
    # Nine sampled tokens: six of version 3 and three of version 5.
    assert numbers["staleness_mean"] == pytest.approx((6 * 3 + 3 * 1) / 9)
    assert numbers["staleness_max"] == 3.0
    assert numbers["turns"] == 4.0


def test_a_statistic_that_some_episodes_lack_is_a_mean_over_the_others() -> None:
    made = group([1.0, 0.0])
    made.members[0].statistics["first_edit_right"] = 1.0
    assert group_statistics([made], 0)["first_edit_right"] == 1.0


def test_an_update_of_lost_episodes_only_has_the_same_columns() -> None:
    usual = group_statistics([group([1.0, 0.0])], 0)
    lost = group_statistics([group([None, None])], 0)
    assert lost["infra_failures"] == 2.0
    assert usual.keys() - lost.keys() <= {"reward/correct"}
