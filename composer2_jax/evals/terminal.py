"""The result of a quickstart in a few lines, for the terminal. No jax; imported by `quickstart`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from composer2_jax.evals.words import decimal, duration, gib, pct

Evaluation = Mapping[str, Any]

ROWS: tuple[tuple[str, Callable[[Evaluation], str]], ...] = (
    ("held-out pass rate", lambda e: pct(e.get("pass_rate")) + _interval(e.get("interval"))),
    ("best of 4", lambda e: pct(e.get("best_of_4"))),
    ("first edit right", lambda e: pct(e.get("first_edit_right"))),
    ("finished by itself", lambda e: pct(e.get("finished"))),
    ("tokens an episode", lambda e: decimal(e.get("tokens"))),
    ("turns an episode", lambda e: decimal(e.get("turns"))),
)


def result_text(workdir: Path, report: Mapping[str, Any]) -> str:
    """One column an evaluation, then what the whole run reached and cost."""
    columns = [("after SFT", report.get("sft") or {}), ("after RL", report.get("rl") or {})]
    if report.get("control"):
        columns.append(("scripted control", report["control"]))
    lines = ["", " " * 20 + _row(title for title, _ in columns)]
    lines += [f"{label:<20}" + _row(cell(e) for _, e in columns) for label, cell in ROWS]
    before, after = (decimal(report.get(f"perplexity_{when}")) for when in ("before", "after"))
    return "\n".join(
        [
            *lines,
            "",
            f"perplexity of held-out code: {before} before, {after} after pretraining; "
            f"MTP acceptance {pct(report.get('mtp_acceptance'))}",
            f"{duration(report.get('total_seconds'))} in all, "
            f"{gib(report.get('peak_rss_bytes'))} of memory at most",
            f"report: {workdir / 'report.html'}",
        ]
    )


def _row(cells: Iterable[str]) -> str:
    return "".join(f"{cell:<24}" for cell in cells).rstrip()


def _interval(bounds: tuple[float, float] | None) -> str:
    return f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]" if bounds else ""
