"""The end of a run: `report.json`, and `report.html` and `result.svg` to look at.

The page is one file that needs no network: the headline with its intervals, what RL learned, the
curves of both phases, three trajectories, the cost of each stage. It follows the technical report's
own order (section 3 pretraining, section 4 RL, section 11 evaluation). No jax; `quickstart` may
import it.
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from composer2_jax.evals.charts import (
    Frame,
    dumbbell_chart,
    interval_chart,
    number,
)
from composer2_jax.evals.findings import STAGES, Run, choose_readings, numbers, read_run
from composer2_jax.evals.page import absent, figure, page, section, static
from composer2_jax.evals.records import finite, write_page
from composer2_jax.evals.report_curves import pretraining, reinforcement, reward_chart
from composer2_jax.evals.statistics import Estimate
from composer2_jax.evals.viewer import trajectory_html
from composer2_jax.evals.words import count, decimal, duration, fixed, gib, pct, points
from composer2_jax.files import write_json

Report = Mapping[str, Any]
AGENTS = (("sft", "SFT"), ("control", "SFT + script"), ("rl", "RL"))
NAV = (
    ("result", "Result"),
    ("learned", "What RL learned"),
    ("pretraining", "Pretraining"),
    ("rl", "RL"),
    ("read", "Trajectories"),
    ("cost", "Cost"),
    ("method", "Method"),
)


def write_report(workdir: Path) -> dict[str, Any]:
    """Writes `report.json`, `report.html` and `result.svg` into `workdir`; returns the numbers."""
    run = read_run(workdir)
    report = numbers(run)
    write_json(workdir / "report.json", report)
    write_page(workdir / "report.html", report_html(report, run))
    write_page(workdir / "result.svg", result_svg(report, run))
    return report


def report_html(report: Report, run: Run) -> str:
    """The whole page."""
    sections = (
        _headline(report),
        _result(report),
        _learned(report),
        pretraining(report, run),
        reinforcement(run),
        _readings(run),
        _cost(report),
        _method(),
    )
    nav = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in NAV)
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items() if v)
    return page(
        "composer2_jax: report of a run", "".join(sections), nav=nav, footer=escape(versions)
    )


def result_svg(report: Report, run: Run) -> str:
    """The headline as a picture: pass rates with intervals, and the reward over RL."""
    left = "".join(
        f'<svg x="20" y="{y}" width="420" height="132">{chart}</svg>'
        for y, chart in zip((20, 160), _interval_charts(report, 420, 132), strict=False)
    )
    right = reward_chart(run, Frame(width=400, height=272))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 312" role="img" '
        f'aria-label="{escape(_headline_text(report))}"><style>{static("chart.css")}</style>'
        f'<rect width="900" height="312" rx="6" fill="var(--paper)"/>{left}'
        f'<svg x="480" y="20" width="400" height="272">{right}</svg></svg>\n'
    )


# The result


def _headline_text(report: Report) -> str:
    sft, rl = _rate(report, "sft"), _rate(report, "rl")
    if sft is None and rl is None:
        return "This run has not evaluated an agent yet"
    if rl is None:
        return f"After SFT the agent solves {pct(sft)} of held-out tasks; RL is not evaluated yet"
    if sft is None:
        return f"After RL the agent solves {pct(rl)} of held-out tasks; SFT was not evaluated"
    gain = (report["gain"] or {}).get("pass_rate") or {}
    low, high = gain.get("interval") or (-1.0, 1.0)
    if "interval" not in gain:
        return f"Held-out tasks solved: {pct(sft)} after SFT, {pct(rl)} after RL"
    if low > 0:
        return f"RL takes the agent from {pct(sft)} to {pct(rl)} of held-out tasks"
    if high < 0:
        return f"RL has hurt: {pct(sft)} of held-out tasks before, {pct(rl)} after"
    return f"No clear effect of RL: {pct(sft)} of held-out tasks before, {pct(rl)} after"


def _headline(report: Report) -> str:
    measured = report["rl"] or report["sft"]
    lede = []
    if measured and measured.get("tasks"):
        lede.append(
            f"{measured['tasks']} held-out tasks from {measured['functions']} source functions, "
            f"{measured['episodes'] / measured['tasks']:.3g} samples each."
        )
    gain = report["gain"] or {}
    if "pass_rate" in gain:
        best = f", best-of-4 by {points(gain['best_of_4'])}" if "best_of_4" in gain else ""
        lede.append(
            f"Paired by task, RL changes the mean pass rate by {points(gain['pass_rate'])}{best}."
        )
    if "not_paired" in gain:
        lede.append(f"The two evaluations cannot be paired: {gain['not_paired']}.")
    if not report["complete"]:
        lede.append("The run is not complete: what is missing is marked below.")
    facts = (
        ("whole run", duration(report["total_seconds"]), ""),
        ("of it set-up", duration(report["setup_seconds"]), ""),
        ("peak memory", gib(report["peak_rss_bytes"]), ""),
        (
            "held-out perplexity",
            fixed(report["perplexity_after"], 3),
            f"from {fixed(report['perplexity_before'], 3)}",
        ),
        ("MTP drafts accepted", pct(report["mtp_acceptance"]), ""),
        ("seed", "–" if report["seed"] is None else str(report["seed"]), ""),
    )
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value} <small>{more}</small></dd></div>"
        for name, value, more in facts
    )
    return (
        f"<h1>{escape(_headline_text(report))}</h1>"
        f'<p class="lede">{escape(" ".join(lede))}</p><dl class="facts">{cells}</dl>'
    )


def _result(report: Report) -> str:
    charts = _interval_charts(report, 460, 174)
    caption = (
        "<b>Held-out tasks solved</b>, dots with 95% intervals. The interval is a bootstrap over "
        "groups of alike source functions, whose tasks are not independent. Best of 4 counts a "
        "task when any of four samples solves it."
    )
    if report["control"]:
        caption += (
            " <b>SFT + script</b> is the control: the SFT weights inside a scripted loop that "
            "tests, undoes and retries."
        )
    over = (report["gain_over_control"] or {}).get("pass_rate")
    if over:
        caption += f" RL beats it by {escape(points(over))}."
    if not charts:
        return section("result", "Result", absent("Evaluation"))
    return section("result", "Result", figure("".join(charts), caption, "charts two"))


def _interval_charts(report: Report, width: int, height: int) -> list[str]:
    """Mean pass rate and best-of-4 of every agent that was evaluated."""
    charts = []
    for title, key, interval_key in (
        ("Mean pass rate, held-out tasks", "pass_rate", "interval"),
        ("Best of 4, held-out tasks", "best_of_4", "best_of_4_interval"),
    ):
        rows = []
        for agent, name in AGENTS:
            found = report[agent] or {}
            value, interval = finite(found.get(key)), found.get(interval_key)
            if value is not None:
                estimate = Estimate(value, tuple(interval) if interval else None, 0, 0)
                rows.append((name, agent, estimate))
        if rows:
            frame = Frame(width=width, height=height, left=104, right=76)
            charts.append(interval_chart(title, rows, frame=frame))
    return charts


# What RL learned


def _learned(report: Report) -> str:
    agents = [(report[agent], name) for agent, name in AGENTS if report[agent]]
    if not agents:
        return section("learned", "What RL learned", absent("Evaluation"))
    rows = (
        ("Mean pass rate", lambda a: pct(a.get("pass_rate"))),
        ("Best of 4", lambda a: pct(a.get("best_of_4"))),
        ("First edit is right, of episodes that edit", lambda a: pct(a.get("first_edit_right"))),
        ("Episodes that edit", lambda a: pct(a.get("edits"))),
        ("Episodes that run the tests", lambda a: pct(a.get("tests"))),
        ("Tests run an episode", lambda a: decimal(a.get("tests_run"))),
        ("Edits tried an episode", lambda a: decimal(_tool(a, "edit_file"))),
        ("Edits undone an episode", lambda a: decimal(_tool(a, "undo_edit"))),
        ("Calls rejected an episode", lambda a: decimal(a.get("invalid_calls"))),
        ("Ended by its own finish", lambda a: pct(a.get("finished"))),
        ("Visible tests pass, hidden ones fail", lambda a: pct(a.get("visible_pass_hidden_fail"))),
        ("Turns an episode", lambda a: decimal(a.get("turns"), 1)),
        ("Tokens sampled an episode", lambda a: decimal(a.get("sampled_tokens"), 0)),
        ("Tokens an episode, all", lambda a: decimal(a.get("tokens"), 0)),
        ("Seconds an episode", lambda a: decimal(a.get("seconds"))),
    )
    head = "".join(f"<th>{escape(name)}</th>" for _, name in agents)
    body = "".join(
        f"<tr><td>{label}</td>{''.join(f'<td>{show(found)}</td>' for found, _ in agents)}</tr>"
        for label, show in rows
    )
    table = f'<div class="scroll"><table><tr><th>held-out tasks</th>{head}</tr>{body}</table></div>'
    text = (
        "<p>Whether the gain is better fault finding or better habits shows in how the agent "
        "works: a first edit that is right more often is the former; testing, undoing and going "
        "on are the latter, and cost tokens.</p>"
    )
    return section("learned", "What RL learned", text + table + _kinds(report))


def _kinds(report: Report) -> str:
    before = (report["sft"] or {}).get("by_fault_kind") or {}
    after = (report["rl"] or {}).get("by_fault_kind") or {}
    rate = "pass_rate"
    rows = [
        (f"{kind} ({after[kind]['tasks']} tasks)", before[kind][rate], after[kind][rate])
        for kind in sorted(before.keys() & after.keys(), key=lambda k: -after[k]["pass_rate"])
    ]
    if not rows:
        return ""
    return (
        f'<figure class="wide">{dumbbell_chart("Mean pass rate by kind of fault", rows)}'
        "<figcaption>Kinds with few tasks move by chance; there is no interval here.</figcaption>"
        "</figure>"
    )


# Reading, cost, method


def _readings(run: Run) -> str:
    parts = []
    for reading in choose_readings(run):
        parts.append(f"<h3>{escape(reading.title)}</h3>{trajectory_html(reading.episode)}")
        if reading.before:
            parts.append(
                '<p class="note">The same task before RL:</p>'
                + trajectory_html(reading.before, folded=True)
            )
    intro = (
        "<p>Chosen by rule, not by taste: the shortest held-out episode of its kind among those "
        "that edit, test and undo.</p>"
    )
    body = intro + "".join(parts) if parts else absent("Evaluation after RL")
    return section("read", "Three trajectories", body)


def _cost(report: Report) -> str:
    rows = []
    for name, about in STAGES.items():
        stage = report["stages"][name]
        cells = f'<td><code>{name}</code></td><td class="what">{about}{_damage(stage)}</td>'
        if stage["status"] == "not run":
            rows.append(f'<tr class="absent">{cells}<td>not run</td><td colspan="4"></td></tr>')
            continue
        mark = "" if stage["status"] == "done" else " <small>unfinished</small>"
        loss = fixed(stage["loss"], 3)
        if stage["first_loss"] is not None and name != "rl":
            loss = f"{fixed(stage['first_loss'], 3)} → {loss}"
        rows.append(
            f"<tr>{cells}<td>{duration(stage['seconds'])}{mark}</td><td>{count(stage['tokens'])}"
            f"</td><td>{loss}</td><td>{gib(stage['peak_rss_bytes'])}</td>"
            f"<td>{_stage_result(name, stage)}</td></tr>"
        )
    known = report["setup_seconds"] is not None
    setup = f"set-up {duration(report['setup_seconds'])} included" if known else ""
    rows.append(
        f'<tr class="total"><td>all</td><td class="what">{setup}</td>'
        f"<td>{duration(report['total_seconds'])}</td><td></td><td></td>"
        f"<td>{gib(report['peak_rss_bytes'])}</td><td></td></tr>"
    )
    head = (
        '<tr><th>stage</th><th class="what">what it does</th><th>time</th><th>tokens</th>'
        "<th>loss</th><th>peak memory</th><th>result</th></tr>"
    )
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    return section("cost", "What it cost", table)


def _damage(stage: Report) -> str:
    cut, ungraded = stage["damaged_lines"], stage["ungraded_episodes"]
    text = f" <small>({cut} cut log lines skipped)</small>" if cut else ""
    return text + (f" <small>({ungraded} ungraded episodes left out)</small>" if ungraded else "")


def _stage_result(name: str, stage: Report) -> str:
    if finite(stage.get("pass_rate")) is not None:
        return f"{pct(stage['pass_rate'])} solved"
    if finite(stage.get("mtp_acceptance")) is not None:
        return f"{pct(stage['mtp_acceptance'])} accepted"
    if finite(stage.get("perplexity_after")) is not None:
        return f"perplexity {fixed(stage['perplexity_after'], 3)}"
    return f"{number(stage['steps'])} updates" if name == "rl" and stage["steps"] else ""


def _method() -> str:
    notes = (
        "A task is a real git repository with one fault; the reward is 1 when every hidden test "
        "passes in a fresh sandbox at the end of the episode, else 0.",
        "The mean pass rate is over tasks; a task&rsquo;s score is the share of its samples that "
        "pass. Best of 4 is the unbiased pass@4.",
        "Intervals are 95% percentile intervals of 4000 bootstrap resamples of whole "
        "groups of alike functions, from a fixed seed. They say how much other functions could "
        "move the number, "
        "not how much another training seed would.",
        "Gains are paired by task and resampled the same way.",
        "Peak memory adds up a stage&rsquo;s processes and counts shared pages once for each.",
    )
    text = (
        "<p>The numbers of this page are in <code>report.json</code> beside it; every episode is "
        "in <code>episodes.jsonl</code> of its stage, and <code>python -m composer2_jax.view "
        "--workdir=DIR/eval_rl</code> makes them readable.</p>"
    )
    items = "".join(f"<li>{note}</li>" for note in notes)
    return section("method", "How these numbers are made", f'<ul class="notes">{items}</ul>{text}')


# Words


def _rate(report: Report, agent: str) -> float | None:
    return finite((report[agent] or {}).get("pass_rate"))


def _tool(found: Report, name: str) -> float | None:
    counts = found.get("tool_counts")
    return None if counts is None else counts.get(name, 0.0)
