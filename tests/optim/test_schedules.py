"""Learning-rate schedules at the points where they are known."""

from __future__ import annotations

import pytest

from composer2_jax.optim.schedules import SCHEDULES, warmup_stable_decay

PEAK, STEPS, WARMUP, FINAL = 2.0, 100, 10, 0.1


def rate(name: str, step: int) -> float:
    return float(SCHEDULES[name](step, PEAK, STEPS, WARMUP, FINAL))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_warm_up_wastes_no_step_and_reaches_the_peak(name: str) -> None:
    assert rate(name, 0) == pytest.approx(PEAK / WARMUP)
    assert rate(name, 4) == pytest.approx(PEAK / 2)
    assert rate(name, WARMUP) == pytest.approx(PEAK, rel=1e-3)


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_the_end_is_the_given_fraction_and_stays_there(name: str) -> None:
    assert rate(name, STEPS) == pytest.approx(PEAK * FINAL)
    assert rate(name, 10 * STEPS) == pytest.approx(PEAK * FINAL)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_half_way_down_is_the_middle(name: str) -> None:
    assert rate(name, 55) == pytest.approx(PEAK * (1 + FINAL) / 2)


def test_shapes_between() -> None:
    assert rate("cosine", 20) > rate("linear", 20)
    assert rate("wsd", 79) == pytest.approx(PEAK)
    assert rate("wsd", 90) == pytest.approx(PEAK * (1 + FINAL) / 2)
    late = warmup_stable_decay(49, PEAK, STEPS, WARMUP, FINAL, decay=0.5)
    assert float(late) == pytest.approx(PEAK)
    assert rate("constant", 99) == PEAK
