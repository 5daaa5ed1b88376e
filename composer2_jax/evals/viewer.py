"""Episodes to read: each turn's tool call, its result, and the diff, as HTML and as text.

The report's authors watched their runs by reading trajectories (emergent behaviours, section 5);
this is the reading room. `trajectory_html` is the component that the run report shares. Whatever an
agent or a program wrote is escaped: an episode cannot act on its reader. No jax; the verbs and
`evals.report` may import it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from pathlib import Path

from composer2_jax.errors import UserError
from composer2_jax.evals.charts import percent
from composer2_jax.evals.page import page
from composer2_jax.evals.records import Record, Stage, read_stage, write_page
from composer2_jax.evals.summary import summarize

# One episode


def turns(episode: Record) -> Iterator[tuple[Record, list[Record]]]:
    """Each assistant message with the tool messages that answer it."""
    said: Record | None = None
    results: list[Record] = []
    for message in episode.get("messages") or ():
        if message.get("role") == "assistant":
            if said is not None:
                yield said, results
            said, results = message, []
        elif message.get("role") == "tool" and said is not None:
            results.append(message)
    if said is not None:
        yield said, results


def task_prompt(episode: Record) -> str:
    """What the user asked."""
    asked = (m["content"] for m in episode.get("messages") or () if m.get("role") == "user")
    return next(asked, "")


def trajectory_html(episode: Record, *, folded: bool = False) -> str:
    """One episode: outcome, task, every turn, and the repository's final diff."""
    outcome = "solved" if episode["reward"] >= 1.0 else "failed"
    head = "".join(
        f'<span class="{css}">{escape(text)}</span>' for css, text in _headline(episode, outcome)
    )
    items = "".join(f"<li>{_turn(said, results)}</li>" for said, results in turns(episode))
    final = diff_html(episode.get("diff") or "") or '<p class="note">No change was left.</p>'
    inner = (
        f'<p class="ask">{escape(task_prompt(episode))}</p><ol class="turns">{items}</ol>'
        f'<div class="final"><h4>What it changed in the repository</h4>{final}</div>'
    )
    if not folded:
        return f'<article class="trajectory {outcome}"><header>{head}</header>{inner}</article>'
    asked = task_prompt(episode).partition("\n")[0]
    head += f'<span class="asked">{escape(asked)}</span>'
    words = " ".join(str(episode.get(k, "")) for k in ("task_id", "function", "fault_kind"))
    search = escape(f"{words} {task_prompt(episode)}".lower())
    return (
        f'<details class="trajectory {outcome}" data-search="{search}">'
        f"<summary>{head}</summary>{inner}</details>"
    )


def _headline(episode: Record, outcome: str) -> list[tuple[str, str]]:
    cells = [("outcome", outcome.capitalize()), ("task", str(episode["task_id"]))]
    if episode.get("fault_kind"):
        cells.append(("stat", f"fault: {episode['fault_kind']}"))
    if episode.get("step") is not None:
        cells.append(("stat", f"update {episode['step']}"))
    if episode.get("sample") is not None:
        cells.append(("stat", f"sample {episode['sample']}"))
    for key, unit in (("turns", "turns"), ("sampled_tokens", "sampled tokens")):
        if episode.get(key) is not None:
            cells.append(("stat", f"{episode[key]:g} {unit}"))
    if episode.get("tests_run") is not None:
        cells.append(("stat", f"tests run {episode['tests_run']}×"))
    if episode.get("finished") is False:
        cells.append(("stat", "did not finish by itself"))
    return cells


def _turn(said: Record, results: Sequence[Record]) -> str:
    calls = said.get("calls") or ()
    parts = []
    if said.get("content"):
        parts.append(f'<p class="say">{escape(said["content"])}</p>')
    for index in range(max(len(calls), len(results))):
        call = _call(calls[index]) if index < len(calls) else ""
        # A turn that could not be parsed has no call, only the complaint that answers it.
        tool = calls[index]["name"] if index < len(calls) else ""
        answer = _result(tool, results[index]["content"]) if index < len(results) else ""
        parts.append(f'<div class="call">{call}{answer}</div>')
    return "".join(parts) or '<p class="note">(said nothing and called nothing)</p>'


def _call(call: Record) -> str:
    arguments = dict(call.get("arguments") or {})
    tool = f'<span class="tool">{escape(call["name"])}</span>'
    edit = ""
    if call["name"] == "edit_file" and "old" in arguments and "new" in arguments:
        edit = _replacement(str(arguments.pop("old")), str(arguments.pop("new")))
    shown = "".join(
        f' <span class="name">{escape(name)}</span> {escape(str(value))}'
        for name, value in arguments.items()
        if value != ""
    )
    return f"{tool}{shown}{edit}"


def _result(tool: str, content: str) -> str:
    mood = ""
    if content.startswith("error"):
        mood = " error"
    elif tool == "run_command":
        mood = " ok" if re.match(r"exit 0\b", content) else " error"
    if not content:
        return '<pre class="result empty">(empty)</pre>'
    # "7|code" lines get a gutter, so that the code reads as code.
    lines = [
        re.sub(r"^(\d+)\|", r'<span class="ln">\1</span>', escape(line))
        for line in content.split("\n")
    ]
    return f'<pre class="result{mood}">{chr(10).join(lines)}</pre>'


# Diffs


def diff_html(diff: str) -> str:
    """A unified diff, coloured, with what changed inside a replaced line marked; "" for none."""
    lines = diff.removesuffix("\n").split("\n") if diff else []
    runs = [
        (kind, [line for _, line in run])
        for kind, run in groupby(zip(_line_kinds(lines), lines, strict=True), key=lambda r: r[0])
    ]
    rows: list[str] = []
    pending: str | None = None
    for (kind, run), (after, next_run) in pairwise([*runs, ("", [])]):
        if kind == "del" and after == "add" and len(run) == len(next_run) == 1:
            pending = run[0]
        elif pending is not None:
            rows.append(_marked(pending[1:], run[0][1:]))
            pending = None
        else:
            rows.extend(_diff_line(kind, line) for line in run)
    return f'<pre class="diff">{"".join(rows)}</pre>' if rows else ""


def _line_kinds(lines: Sequence[str]) -> Iterator[str]:
    in_hunk = False
    for line in lines:
        # "--- a" heads a file before its first hunk and is a removed "-- a" inside one.
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith("diff --git"))
        if line.startswith("@@"):
            yield "hunk"
        else:
            yield {"+": "add", "-": "del"}.get(line[:1], "same") if in_hunk else "file"


def _diff_line(kind: str, line: str) -> str:
    if kind in ("hunk", "file"):
        return f'<span class="{kind}">{escape(line)}</span>'
    return f'<span class="{kind}" data-sign="{escape(line[:1])}">{escape(line[1:])}</span>'


def _replacement(old: str, new: str) -> str:
    """The two arguments of an edit call, as a diff."""
    if "\n" not in old + new:
        return f'<pre class="diff">{_marked(old, new)}</pre>'
    rows = [_diff_line("del", f"-{line}") for line in old.split("\n")]
    rows += [_diff_line("add", f"+{line}") for line in new.split("\n")]
    return f'<pre class="diff">{"".join(rows)}</pre>'


def _marked(old: str, new: str) -> str:
    """A removed and an added line with the part between their common ends marked."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < min(len(old), len(new)) - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1

    def row(css: str, sign: str, text: str) -> str:
        end = len(text) - stop
        middle = f"<mark>{escape(text[start:end])}</mark>" if end > start else ""
        body = escape(text[:start]) + middle + escape(text[end:])
        return f'<span class="{css}" data-sign="{sign}">{body}</span>'

    return row("del", "-", old) + row("add", "+", new)


# A whole stage


@dataclass(frozen=True)
class Viewing:
    """A written page, the episodes it is about, and how many of them are on it."""

    path: Path
    episodes: Sequence[Record]
    shown: int


def write_viewer(stage_dir: Path, *, task: str = "", limit: int = 200) -> Viewing:
    """Writes `trajectories.html` into a stage directory.

    With `task`, that task's episodes only. At most `limit` are written, evenly spread over the
    file; the page and the summary say of how many.
    """
    stage = read_stage(stage_dir.parent, stage_dir.name)
    source = stage_dir / "episodes.jsonl"
    if not stage.episodes:
        raise UserError(f"{source}: no episodes; give --workdir of evaluate or reinforce")
    chosen = [e for e in stage.episodes if not task or e["task_id"] == task]
    if not chosen:
        some = ", ".join(sorted({e["task_id"] for e in stage.episodes})[:3])
        raise UserError(f"--task={task}: not in {source}, which has {some}, ...")
    shown = chosen
    if limit < len(chosen):
        shown = [chosen[i * len(chosen) // limit] for i in range(limit)]
    path = stage_dir / "trajectories.html"
    write_page(path, _viewer_page(stage, chosen, shown, task))
    return Viewing(path, chosen, len(shown))


def _viewer_page(stage: Stage, chosen: Sequence[Record], shown: Sequence[Record], task: str) -> str:
    solved = sum(e["reward"] >= 1.0 for e in chosen)
    name = f"{stage.name} · {task}" if task else stage.name
    cut = "" if len(shown) == len(chosen) else f" {len(shown)} of them, evenly spread, are here."
    form = (
        '<form class="filters"><input name="words" type="search" aria-label="Filter" '
        'placeholder="Filter by task, function, fault or prompt">'
        '<select name="outcome" aria-label="Outcome"><option value="">Solved and failed</option>'
        '<option value="solved">Solved</option><option value="failed">Failed</option></select>'
        "<output></output></form>"
    )
    body = (
        f"<h1>Episodes of {escape(name)}</h1>"
        f'<p class="lede">{solved} of {len(chosen)} episodes were solved '
        f"({percent(solved / len(chosen))}).{cut}</p>{form}"
    )
    return page(
        f"Episodes of {name}",
        body + "".join(trajectory_html(e, folded=len(shown) > 1) for e in shown),
    )


def episode_text(episode: Record, width: int = 100) -> str:
    """One episode for the terminal: a line a call and the first line of each answer."""
    outcome = "solved" if episode["reward"] >= 1.0 else "failed"
    title = f"{episode['task_id']} sample {episode.get('sample')}: {outcome}"
    lines = [title, task_prompt(episode)]
    for number, (said, results) in enumerate(turns(episode), start=1):
        calls = [
            f"{call['name']} {' | '.join(str(v) for v in call.get('arguments', {}).values() if v)}"
            for call in said.get("calls") or ()
        ] or [said.get("content") or "(nothing)"]
        answers = [m["content"] for m in results] + [""] * len(calls)
        for call, answer in zip(calls, answers, strict=False):
            shown = f"{number:3}  {call.strip()}" + (f"  ->  {answer}" if answer else "")
            flat = " / ".join(shown.splitlines())
            lines.append(flat if len(flat) <= width else flat[: width - 1] + "…")
    return printable("\n".join(lines))


def summary_text(viewing: Viewing) -> str:
    """The episodes' numbers for the terminal."""
    found = summarize(viewing.episodes)
    interval = ""
    if found["interval"]:
        low, high = found["interval"]
        interval = f"  [{percent(low)}, {percent(high)}]"
    best = found["best_of_4"]

    def show(key: str) -> str:
        value = found[key]
        return "-" if value is None else f"{value:.2f}"

    tools = ", ".join(f"{name} {count:.2f}" for name, count in found["tool_counts"].items())
    return printable(
        f"{found['episodes']} episodes of {found['tasks']} tasks, {found['functions']} functions\n"
        f"mean pass rate   {percent(found['pass_rate'])}{interval}\n"
        f"best of 4        {'-' if best is None else percent(best)}\n"
        f"an episode has   {show('turns')} turns, {show('sampled_tokens')} sampled tokens, "
        f"{show('tests_run')} test runs, {show('seconds')} s\n"
        f"finish by itself {show('finished')}, first edit right {show('first_edit_right')}\n"
        f"calls an episode {tools or '-'}\n"
        f"wrote {viewing.path} ({viewing.shown} of {found['episodes']} episodes)"
    )


def printable(text: str) -> str:
    """`text` without control characters: an episode must not steer the reader's terminal."""
    return "".join(c if c == "\n" or c.isprintable() else "�" for c in text)
