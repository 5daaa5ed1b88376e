"""Line and interval charts as SVG text, drawn without a plotting library.

Used by the run report for the curves that the technical report shows as figures 2 and 5. Colours
come from the CSS variables of `static/chart.css`, so one drawing serves light and dark pages and
also stands alone as a file. The data of a line chart travel in its `data-chart` attribute, from
which the page draws a crosshair; without a script the chart is still complete. No jax.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from composer2_jax.evals.statistics import Estimate

MAX_POINTS = 240
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """One line. `tone` is a CSS class (ink, sft, rl, control); `smooth` adds a moving mean."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    tone: str = "ink"
    smooth: bool = False


@dataclass(frozen=True)
class Frame:
    """Where a chart is drawn: size and margins in SVG units, and the x axis' title."""

    width: int = 320
    height: int = 190
    left: int = 44
    right: int = 8
    top: int = 30
    bottom: int = 36


Format = Callable[[float], str]


def number(value: float) -> str:
    """A short label: three significant digits, 1.2k and 3.4M for large values."""
    size = abs(value)
    if size >= 999_500:
        return f"{value / 1e6:.3g}M"
    if size >= 9_995:
        return f"{value / 1e3:.3g}k"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 1e-3:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if mantissa == "1.0" else f"{mantissa}·{power}"


def percent(value: float) -> str:
    """0.425 -> "42.5%"; round values lose their ".0" (axis labels)."""
    text = f"{100 * value:.1f}"
    return text.removesuffix(".0") + "%"


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round values (1, 2, 2.5 or 5 times a power of ten) that cover [low, high]."""
    span = (high - low) or abs(high) or 1.0
    raw = span / count
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(f * base for f in (1, 2, 2.5, 5, 10) if f * base >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around [low, high], at most six of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    stride = max(1, math.ceil((last - first) / 5))
    return [10.0**e for e in range(first, last + stride, stride)]


def thin(x: Sequence[float], y: Sequence[float], limit: int = MAX_POINTS) -> tuple[list, list]:
    """At most `limit` points: means over equal bins, each placed at its bin's last x."""
    size = math.ceil(len(x) / limit) if x else 1
    bins = range(0, len(x), size)
    return (
        [x[min(i + size, len(x)) - 1] for i in bins],
        [sum(y[i : i + size]) / len(y[i : i + size]) for i in bins],
    )


def moving_mean(y: Sequence[float], half: int) -> list[float]:
    """Centred mean over up to 2 half + 1 neighbours; fewer at the two ends."""
    windows = (y[max(0, i - half) : i + half + 1] for i in range(len(y)))
    return [sum(window) / len(window) for window in windows]


def line_chart(
    title: str,
    series: Sequence[Series],
    x_title: str,
    *,
    unit: str = "",
    y_format: Format = number,
    y_range: tuple[float, float] | None = None,
    log: bool = False,
    frame: Frame | None = None,
) -> str:
    """An SVG line chart, or one that says "not logged" when no series holds a point.

    `y_range` is a range that the axis must at least cover. With `log`, values <= 0 are left out.
    """
    box = frame or Frame()
    lines = [_prepared(s, log) for s in series]
    lines = [s for s in lines if s.x]
    if not lines:
        return _svg(
            box,
            title,
            f'<text class="none" x="{box.width / 2}" y="{box.height / 2}" '
            f'text-anchor="middle">not logged</text>',
            unit,
        )
    if len(lines) > 1:
        box = replace(box, top=box.top + 12)
    ys = [v for s in lines for v in s.y] + list(y_range or ())
    y_ticks = log_ticks(min(ys), max(ys)) if log else ticks(min(ys), max(ys))
    xs = [v for s in lines for v in s.x]
    x_low, x_high = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    to_x = _scale(x_low, x_high, box.left, box.width - box.right)
    if log:
        log_y = _scale(
            math.log10(y_ticks[0]), math.log10(y_ticks[-1]), box.height - box.bottom, box.top
        )
        to_y: Callable[[float], float] = lambda v: log_y(math.log10(v))  # noqa: E731
    else:
        to_y = _scale(y_ticks[0], y_ticks[-1], box.height - box.bottom, box.top)
    parts = [_y_axis(box, y_ticks, to_y, y_format), _x_axis(box, x_low, x_high, to_x, x_title)]
    for s in lines:
        parts.append(_curve(s, to_x, to_y))
    if len(lines) > 1:
        parts.append(_legend(box, lines))
    data = _crosshair(box, lines, to_x, to_y, x_title, y_format)
    return _svg(box, title, "".join(parts), unit, json.dumps(data, separators=(",", ":")))


def interval_chart(
    title: str, rows: Sequence[tuple[str, str, Estimate]], *, frame: Frame | None = None
) -> str:
    """Dots with 95% whiskers on one axis from 0%; a row is (label, tone, estimate)."""
    box = frame or Frame(left=130, right=84)
    top = max((e.interval[1] if e.interval else e.value) for _, _, e in rows) if rows else 1.0
    marks = ticks(0.0, min(1.0, max(top, 0.1)), 5)
    to_x = _scale(0.0, marks[-1], box.left, box.width - box.right)
    floor = box.height - box.bottom
    parts = [_percent_grid(box, marks, to_x)]
    pitch = (floor - box.top) / max(len(rows), 1)
    for index, (label, tone, estimate) in enumerate(rows):
        y = box.top + pitch * (index + 0.5)
        x = to_x(estimate.value)
        tip = f"{label}: {percent(estimate.value)}"
        if estimate.interval:
            low, high = estimate.interval
            tip += f", 95% interval {percent(low)} to {percent(high)}"
            parts.append(
                f'<line class="whisker {tone}" x1="{to_x(low):.1f}" x2="{to_x(high):.1f}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/>'
            )
        parts.append(
            f'<g class="point"><title>{escape(tip)}</title>'
            f'<circle class="dot {tone}" cx="{x:.1f}" cy="{y:.1f}" r="6"/></g>'
            f'<text class="label" x="{box.left - 12}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(label)}</text>"
            f'<text class="value {tone}" x="{box.width - box.right + 14}" y="{y + 4.5:.1f}">'
            f"{100 * estimate.value:.1f}%</text>"
        )
    return _svg(box, title, "".join(parts))


def dumbbell_chart(
    title: str,
    rows: Sequence[tuple[str, float, float]],
    names: tuple[str, str] = ("SFT", "RL"),
    *,
    frame: Frame | None = None,
) -> str:
    """One row a label with its share before (tone sft) and after (tone rl), joined by a line."""
    box = frame or Frame(width=640, height=78 + 24 * len(rows), top=42, left=210, right=60)
    marks = ticks(0.0, max([0.1, *(v for _, *pair in rows for v in pair)]), 5)
    marks = [m for m in marks if m <= 1.0]
    to_x = _scale(0.0, marks[-1], box.left, box.width - box.right)
    floor = box.height - box.bottom
    parts = [_percent_grid(box, marks, to_x)]
    for index, (label, before, after) in enumerate(rows):
        y = box.top + (floor - box.top) / len(rows) * (index + 0.5)
        tip = f"{label}: {names[0]} {percent(before)}, {names[1]} {percent(after)}"
        parts.append(
            f'<g class="point"><title>{escape(tip)}</title>'
            f'<line class="whisker rl" x1="{to_x(before):.1f}" x2="{to_x(after):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle class="dot sft" cx="{to_x(before):.1f}" cy="{y:.1f}" r="4.5"/>'
            f'<circle class="dot rl" cx="{to_x(after):.1f}" cy="{y:.1f}" r="4.5"/></g>'
            f'<text class="label" x="{box.left - 12}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(label)}</text>"
        )
    key = [Series(name, (), (), tone) for name, tone in zip(names, ("sft", "rl"), strict=True)]
    return _svg(box, title, "".join(parts) + _legend(box, key))


def _percent_grid(box: Frame, marks: Sequence[float], to_x: Callable) -> str:
    floor = box.height - box.bottom
    return "".join(
        f'<line class="grid" x1="{to_x(m):.1f}" x2="{to_x(m):.1f}" y1="{box.top}" y2="{floor}"/>'
        f'<text class="tick" x="{to_x(m):.1f}" y="{floor + 15}" text-anchor="middle">'
        f"{percent(m)}</text>"
        for m in marks
    )


def _crosshair(
    box: Frame,
    lines: Sequence[Series],
    to_x: Callable,
    to_y: Callable,
    x_title: str,
    y_format: Format,
) -> dict[str, Any]:
    """What the page's script needs to show the values under the pointer, in SVG units."""
    at = sorted({x for s in lines for x in s.x})
    return {
        "title": x_title,
        "top": box.top,
        "bottom": box.height - box.bottom,
        "x": [[round(to_x(x), 1), number(x)] for x in at],
        "series": [
            {
                "name": s.name,
                "tone": s.tone,
                # A series that has no point at this x holds null there.
                "y": [
                    [round(to_y(values[x]), 1), y_format(values[x])] if x in values else None
                    for x in at
                ],
            }
            for s in lines
            for values in [dict(zip(s.x, s.y, strict=True))]
        ],
    }


def _prepared(series: Series, log: bool) -> Series:
    points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y > 0 or not log]
    x, y = thin([p[0] for p in points], [p[1] for p in points])
    return Series(series.name, x, y, series.tone, series.smooth)


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def _curve(series: Series, to_x: Callable, to_y: Callable) -> str:
    def path(ys: Sequence[float], css: str) -> str:
        points = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in zip(series.x, ys, strict=True))
        return f'<polyline class="{css} {series.tone}" points="{points}"/>'

    if len(series.x) == 1:
        return (
            f'<circle class="dot {series.tone}" cx="{to_x(series.x[0]):.1f}" '
            f'cy="{to_y(series.y[0]):.1f}" r="3"/>'
        )
    if series.smooth and len(series.y) > 8:
        smooth = moving_mean(series.y, max(2, len(series.y) // 40))
        return path(series.y, "line faint") + path(smooth, "line")
    return path(series.y, "line")


def _y_axis(box: Frame, marks: Sequence[float], to_y: Callable, y_format: Format) -> str:
    return "".join(
        f'<line class="grid" x1="{box.left}" x2="{box.width - box.right}" '
        f'y1="{to_y(m):.1f}" y2="{to_y(m):.1f}"/>'
        f'<text class="tick" x="{box.left - 7}" y="{to_y(m) + 3.5:.1f}" text-anchor="end">'
        f"{escape(y_format(m))}</text>"
        for m in marks
    )


def _x_axis(box: Frame, low: float, high: float, to_x: Callable, title: str) -> str:
    floor = box.height - box.bottom
    marks = [m for m in ticks(low, high, 4) if low <= m <= high]
    labels = "".join(
        f'<text class="tick" x="{to_x(m):.1f}" y="{floor + 14}" text-anchor="middle">'
        f"{number(m)}</text>"
        for m in marks
    )
    middle = (box.left + box.width - box.right) / 2
    return (
        f'<line class="axis" x1="{box.left}" x2="{box.width - box.right}" y1="{floor}" '
        f'y2="{floor}"/>{labels}<text class="tick axis-title" x="{middle}" '
        f'y="{box.height - 5}" text-anchor="middle">{escape(title)}</text>'
    )


def _legend(box: Frame, lines: Sequence[Series]) -> str:
    """The names of the lines, in the row below the title."""
    parts, x = [], float(box.left)
    for line in lines:
        parts.append(
            f'<line class="line {line.tone}" x1="{x:.1f}" x2="{x + 13:.1f}" y1="28.5" y2="28.5"/>'
            f'<text class="tick" x="{x + 18:.1f}" y="32">{escape(line.name)}</text>'
        )
        # No font metrics without a browser: 6.2 units a character is wide enough for 11 px.
        x += 34 + 6.2 * len(line.name)
    return "".join(parts)


def _svg(box: Frame, title: str, body: str, unit: str = "", data: str = "") -> str:
    unit_text = f'<tspan class="unit" dx="6">{escape(unit)}</tspan>' if unit else ""
    attribute = f' data-chart="{escape(data)}"' if data else ""
    return (
        f'<svg class="chart" viewBox="0 0 {box.width} {box.height}" role="img" '
        f'aria-label="{escape(title)}"{attribute} xmlns="http://www.w3.org/2000/svg">'
        f'<text class="title" x="0" y="15">{escape(title)}{unit_text}</text>{body}</svg>'
    )
