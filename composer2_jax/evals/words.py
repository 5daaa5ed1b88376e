"""How the pages and the terminal word a number; what is not known is a dash.

No jax; the files of `evals` may import it.
"""

from collections.abc import Mapping
from typing import Any

from composer2_jax.evals.charts import number
from composer2_jax.evals.records import finite

UNKNOWN = "–"


def pct(value: float | None) -> str:
    """0.425 -> "42.5%"."""
    known = finite(value)
    return UNKNOWN if known is None else f"{100 * known:.1f}%"


def fixed(value: float | None, digits: int) -> str:
    """`digits` significant digits, without an exponent."""
    known = finite(value)
    return UNKNOWN if known is None else f"{float(f'{known:.{digits}g}'):,.10g}"


def decimal(value: float | None, places: int = 2) -> str:
    """Always `places` digits after the point, for columns that are compared."""
    known = finite(value)
    return UNKNOWN if known is None else f"{known:,.{places}f}"


def count(value: float | None) -> str:
    """2_050_000 -> "2.05M"."""
    known = finite(value)
    return UNKNOWN if known is None else number(known)


def gib(value: float | None) -> str:
    """Bytes in GiB."""
    known = finite(value)
    return UNKNOWN if known is None else f"{known / 2**30:.2f} GiB"


def points(gain: Mapping[str, Any]) -> str:
    """An `Estimate` record of a difference of rates, in percentage points."""
    text = f"{100 * gain['value']:+.1f} points"
    if gain["interval"]:
        low, high = gain["interval"]
        text += f" (95% interval {100 * low:+.1f} to {100 * high:+.1f})"
    return text


def duration(seconds: float | None) -> str:
    """12.3 s, 4 min 05 s, 1 h 10 min."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
