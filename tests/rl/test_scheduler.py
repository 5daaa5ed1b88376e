"""Admission bounds staleness without throwing work away, and batches do not depend on timing."""

import random

import pytest

from composer2_jax.rl.scheduler import Schedule


def test_every_prompt_is_used_once_in_a_seeded_order() -> None:
    schedule = Schedule(10, 3, 1, seed=4)
    assert schedule.num_updates == 3
    places = [place for update in range(3) for place in schedule.batch(update)]
    assert places == list(range(9))
    assert sorted(schedule.order()) == list(range(10))
    assert schedule.order() == Schedule(10, 3, 1, seed=4).order()
    assert schedule.order() != Schedule(10, 3, 1, seed=5).order()


@pytest.mark.parametrize(
    ("staleness", "version", "below"),
    [(0, 0, 2), (1, 0, 4), (1, 1, 6), (3, 0, 8), (3, 1, 8), (0, 4, 8), (0, -1, 0), (1, -1, 2)],
)
def test_a_prompt_starts_once_its_update_is_near_enough(
    staleness: int, version: int, below: int
) -> None:
    assert Schedule(9, 2, staleness, seed=0).admissible(version) == below


def test_after_a_restart_only_what_is_missing_is_sampled_oldest_first() -> None:
    schedule = Schedule(9, 2, 1, seed=0)
    assert schedule.missing(0, []) == list(range(8))
    assert schedule.missing(1, [5, 3]) == [2, 4, 6, 7]
    assert schedule.missing(4, []) == []


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_tokens_are_never_staler_than_the_bound_whatever_the_timing(staleness: int) -> None:
    """A simulated run: groups take random times, the learner trains as soon as it can."""
    for seed in range(20):
        rng = random.Random(seed)
        schedule = Schedule(24, 3, staleness, seed)
        version, waiting = 0, list(reversed(range(24)))
        running: dict[int, int] = {}  # place -> the version of its first token
        ready: dict[int, int] = {}
        gaps, trained = [], []
        while version < schedule.num_updates:
            while waiting and waiting[-1] < schedule.admissible(version):
                running[waiting.pop()] = version
            assert running or ready, "the run stands still"
            if running:
                place = rng.choice(list(running))
                ready[place] = running.pop(place)
            batch = schedule.batch(version)
            if all(place in ready for place in batch):
                gaps += [version - ready.pop(place) for place in batch]
                trained += batch
                version += 1
        assert trained == list(range(24))
        assert max(gaps) <= staleness
        # Something is really sampled ahead where that is allowed.
        assert (max(gaps) > 0) == (staleness > 0)
