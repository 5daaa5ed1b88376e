"""Axes hold their data with round labels, and odd data still make a drawing."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from composer2_jax.evals.charts import (
    Series,
    line_chart,
    log_ticks,
    moving_mean,
    number,
    percent,
    thin,
    ticks,
)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.013, 0.0134), (-3.0, 17.0), (5.0, 5.0), (0.0, 0.0), (1e6, 3e6)]
)
def test_ticks_cover_the_data(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low and marks[-1] >= high
    assert 2 <= len(marks) <= 7
    assert len({number(mark) for mark in marks}) == len(marks) or high - low < 1e-3


def test_log_ticks_cover_the_data_and_stay_few() -> None:
    marks = log_ticks(3e-12, 4e2)
    assert marks[0] <= 3e-12 and marks[-1] >= 4e2 and len(marks) <= 6


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12.5, "12.5"), (1500, "1500"), (12_345, "12.3k"), (2_050_000, "2.05M"),
     (1e-4, "10⁻⁴"), (3.4e-7, "3.4·10⁻⁷"), (-0.25, "-0.25"), (999_600, "1M")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_percentages_lose_an_empty_decimal() -> None:
    assert (percent(0.425), percent(0.4)) == ("42.5%", "40%")


def test_thinning_keeps_the_mean_and_the_last_step() -> None:
    x, y = thin(list(range(1000)), [float(i % 2) for i in range(1000)], limit=100)
    assert len(x) == 100 and x[-1] == 999
    assert y == [0.5] * 100


def test_a_moving_mean_uses_what_is_there_at_the_ends() -> None:
    assert moving_mean([0.0, 3.0, 6.0, 9.0], 1) == [1.5, 3.0, 6.0, 7.5]


def test_a_series_without_points_says_so() -> None:
    assert "not logged" in line_chart("Loss", [Series("loss", [], [])], "step")


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [0.0, 0.0]])
def test_constant_and_single_values_can_be_drawn(values: list[float]) -> None:
    steps = [float(i) for i in range(len(values))]
    ElementTree.fromstring(line_chart("Loss", [Series("loss", steps, values)], "step"))


def test_zeros_are_left_out_of_a_logarithmic_axis() -> None:
    series = [Series("max", [1, 2, 3], [1e-3, 0.0, 1e-2]), Series("mean", [1, 2, 3], [0.0] * 3)]
    root = ElementTree.fromstring(line_chart("Gap", series, "step", log=True))
    chart = json.loads(root.attrib["data-chart"])
    assert [series["name"] for series in chart["series"]] == ["max"]
    assert [label for _, label in chart["x"]] == ["1", "3"]


def test_names_are_escaped() -> None:
    drawing = line_chart("<b>", [Series("<i>", [1, 2], [1, 2]), Series("j", [1, 2], [1, 2])], "&")
    root = ElementTree.fromstring(drawing)
    assert root.attrib["aria-label"] == "<b>"
