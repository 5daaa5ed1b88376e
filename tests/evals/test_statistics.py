"""Intervals count functions, not episodes; pass@k is unbiased; pairing needs the same tasks."""

import itertools
import random

import pytest

from composer2_jax.evals.statistics import (
    cluster_bootstrap,
    mean_pass_rate,
    paired_difference,
    pass_at_k,
    unbiased_pass_at_k,
)


def row(task: str, function: str, passed: bool) -> dict[str, object]:
    return {"task_id": task, "function": function, "reward": float(passed)}


def test_more_samples_of_the_same_functions_do_not_narrow_the_interval() -> None:
    # Resampling episodes would narrow it sevenfold for fifty copies of the same ten outcomes.
    outcomes = {f"f{i}": i < 4 for i in range(10)}
    once = mean_pass_rate([row(f, f, passed) for f, passed in outcomes.items()])
    often = mean_pass_rate([row(f, f, passed) for f, passed in outcomes.items()] * 50)
    assert once.interval == often.interval
    assert once.value == often.value == 0.4
    assert once.clusters == 10


def test_the_interval_is_near_the_normal_one_for_many_functions() -> None:
    draw = random.Random(0)
    values = [float(draw.random() < 0.3) for _ in range(400)]
    estimate = cluster_bootstrap(values, [str(i) for i in range(400)])
    half = 1.96 * (estimate.value * (1 - estimate.value) / 400) ** 0.5
    assert estimate.interval == pytest.approx(
        (estimate.value - half, estimate.value + half), abs=0.006
    )


def test_the_interval_depends_neither_on_the_run_nor_on_the_order_of_episodes() -> None:
    draw = random.Random(1)
    rows = [row(f"t{i}", f"f{i // 3}", draw.random() < 0.5) for i in range(60)]
    shuffled = draw.sample(rows, len(rows))
    assert mean_pass_rate(rows) == mean_pass_rate(shuffled) == mean_pass_rate(rows)
    assert mean_pass_rate(rows, seed=1).interval != mean_pass_rate(rows).interval


def test_a_task_counts_once_however_many_samples_it_has() -> None:
    rows = [row("a", "f", True)] * 9 + [row("b", "g", False)]
    assert mean_pass_rate(rows).value == 0.5


def test_a_function_weighs_as_much_as_it_has_tasks() -> None:
    rows = [row(t, "f", True) for t in "abc"] + [row("d", "g", False)]
    estimate = mean_pass_rate(rows)
    assert estimate.value == 0.75
    assert estimate.interval == (0.0, 1.0)


def test_one_function_has_no_interval() -> None:
    assert mean_pass_rate([row("a", "f", True), row("b", "f", False)]).interval is None


def test_nothing_to_average_is_an_error() -> None:
    with pytest.raises(ValueError, match="no task"):
        mean_pass_rate([])


@pytest.mark.parametrize("samples", [1, 4, 6])
def test_pass_at_k_is_the_mean_over_all_subsets_of_k_samples(samples: int) -> None:
    for passes, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        results = [i < passes for i in range(samples)]
        subsets = list(itertools.combinations(results, k))
        expected = sum(map(any, subsets)) / len(subsets)
        assert unbiased_pass_at_k(samples, passes, k) == pytest.approx(expected)


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="not defined"):
        unbiased_pass_at_k(3, 1, 4)
    rows = [row("a", "f", True)] * 4 + [row("b", "g", True)] * 3
    assert pass_at_k(rows, 4).tasks == 1
    with pytest.raises(ValueError, match="no task has 5 samples"):
        pass_at_k(rows, 5)


def test_best_of_four_counts_a_task_that_any_sample_solves() -> None:
    rows = [row(t, t, t == "a" and s == 0) for t in "ab" for s in range(4)]
    assert pass_at_k(rows, 4).value == 0.5
    assert mean_pass_rate(rows).value == 0.125


def test_pairing_cancels_how_hard_the_functions_are() -> None:
    # Every function gains one of its four tasks; how many it had before differs widely.
    before = [row(f"{f}{t}", f"f{f}", t < f % 4) for f in range(20) for t in range(4)]
    after = [row(f"{f}{t}", f"f{f}", t < f % 4 + 1) for f in range(20) for t in range(4)]
    gain = paired_difference(before, after)
    assert gain.value == pytest.approx(0.25)
    assert gain.interval == pytest.approx((0.25, 0.25))


def test_the_sign_of_a_difference_is_after_minus_before() -> None:
    worse = paired_difference([row("a", "f", True)], [row("a", "f", False)])
    assert worse.value == -1.0


def test_evaluations_of_different_tasks_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="2 tasks are in one evaluation only, such as a"):
        paired_difference([row("a", "f", True)], [row("b", "f", True)])
