"""After a kill every prompt enters the weights exactly once: none is skipped, none trained twice,
and what was finished is not sampled again.
"""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from composer2_jax.rl.trajectory import Group
from tests.rl.test_learner import FakeActor, Killed, logged, marked, opened, trained, workdir

__all__ = ["workdir"]


def run_and_kill(workdir: Path, *arrivals: Group, **config: int):
    learner = opened(workdir, **config)
    with pytest.raises(Killed):
        learner.run(FakeActor(*arrivals))
    return learner


class KilledAfterUpdate(FakeActor):
    """Dies once an update is trained, before it is saved."""

    def notice(self) -> None:
        raise Killed


@pytest.mark.parametrize("arrivals", [(2, 4, 5, 3), (2, 3, 4, 5)])
def test_the_worked_example(workdir: Path, arrivals: tuple[int, ...]) -> None:
    """Prompts 0..7, two an update, killed when 0 and 1 are trained and saved, 2 and 3 trained and
    not saved, 4 and 5 finished and queued, 6 under way and 7 not begun."""
    first = run_and_kill(workdir, marked(0), marked(1), save_every=1)
    first._manager.wait()
    assert first.update == 1
    second = opened(workdir)
    assert second.update == 1 and second.missing_places() == [2, 3, 4, 5, 6, 7]
    with pytest.raises(Killed):
        second.run(KilledAfterUpdate(*(marked(place, 1) for place in arrivals)))
    assert second.update == 2 and trained(second) == [1, 1, 1, 1, 0, 0, 0, 0]

    third = opened(workdir)
    assert trained(third) == [1, 1, 0, 0, 0, 0, 0, 0], "the weights are not those after 0 and 1"
    assert third.update == 1
    assert third.missing_places() == [6, 7], "what was finished would be sampled again"
    assert third._ready[4] == marked(4, 1), "a re-used group lost its version tags"
    third.run(FakeActor(marked(7, 2), marked(6, 2)))
    third.close()
    assert trained(third) == [1] * 8
    assert [line["step"] for line in logged(workdir)] == [1, 2, 3, 4]


@pytest.mark.parametrize("save_every", [1, 2])
def test_a_run_killed_after_every_arrival_ends_with_the_same_weights(
    workdir: Path, save_every: int
) -> None:
    sampled: list[int] = []
    update, rng = 0, random.Random(save_every)
    while update < 3:
        learner = opened(workdir, prompts=6, save_every=save_every)
        place = rng.choice(learner.missing_places())
        sampled.append(place)
        with suppress(Killed):
            learner.run(FakeActor(marked(place)))
        learner._manager.wait()
        update = learner.update
    assert trained(learner)[:6] == [1] * 6
    assert sorted(sampled) == list(range(6)), "a finished group was sampled again"


def test_groups_are_kept_until_a_checkpoint_has_them(workdir: Path) -> None:
    learner = run_and_kill(workdir, *(marked(place) for place in range(4)), save_every=100)
    assert learner.update == 2
    again = opened(workdir, save_every=1)
    assert again.update == 0 and again.missing_places() == [4, 5, 6, 7]
    again.run(FakeActor(*(marked(place) for place in range(4, 8))))
    again._manager.wait()
    assert trained(again) == [1] * 8
    again.close()
    last = opened(workdir, save_every=1)
    assert last.update == 4 and not last._ready
    last.close()
