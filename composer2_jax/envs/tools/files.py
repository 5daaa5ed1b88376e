"""Reading, listing and editing files. Bytes that an edit does not name stay as they are.

An edit is matched on bytes, with a line feed in the call matching a line ending of either kind in
the file, so CRLF files, byte-order marks and files that are not UTF-8 survive it. Tools keep a
focus: the lines last shown; an edit applies within them.
"""

import re
from collections.abc import Mapping

from composer2_jax.agent.call_format import number_lines
from composer2_jax.agent.tool_schemas import parse_lines
from composer2_jax.envs.tools.state import Edit, Focus, State, ToolError

LINE_END = rb"\r?\n"
REMINDER_LINES = 3


def read_file(state: State, arguments: Mapping[str, str]) -> str:
    """The file or some of its lines, numbered; sets the focus to what was shown."""
    path = arguments.get("path", "").removeprefix("./") or state.focused().path
    lines = split_lines(_read_text(state, path))
    first, last = 1, len(lines)
    if arguments.get("line"):
        first, last = parse_lines(arguments["line"])
        if first > len(lines):
            raise ToolError(f"{path} has {len(lines)} lines")
        last = min(last, len(lines))
        state.focus = Focus(path, first, last)
    else:
        state.focus = Focus(path)
    shown = b"".join(lines[first - 1 : last]).decode(errors="replace").removeprefix("\ufeff")
    return number_lines(shown, first)


def list_dir(state: State, arguments: Mapping[str, str]) -> str:
    """The names in a directory, one a line."""
    return "\n".join(state.workspace.names(arguments.get("path", "")))


def edit_file(state: State, arguments: Mapping[str, str]) -> str:
    """Replaces `old`, which must occur exactly once in the focused lines, by `new`.

    Where few lines are focused, a refused edit is answered with them, so that nobody has to spend a
    turn on looking again.
    """
    focus = state.focused(arguments.get("path", ""))
    before = _read_text(state, focus.path)
    start, end = _span(before, focus)
    try:
        changed = replace_once(before[start:end], arguments["old"], arguments["new"])
    except ToolError as error:
        raise ToolError(f"{error}{_reminder(before[start:end], focus)}") from None
    after = before[:start] + changed + before[end:]
    state.workspace.write(focus.path, after)
    state.edits.append(Edit(focus.path, before, after, focus))
    grown = after.count(b"\n") - before.count(b"\n")
    last = max(focus.first, focus.last + grown) if focus.last else 0
    state.focus = Focus(focus.path, focus.first, last)
    return "ok"


def undo_edit(state: State, arguments: Mapping[str, str]) -> str:
    """Takes back the last edit, unless something else has changed the file since."""
    if not state.edits:
        raise ToolError("no edit to undo")
    edit = state.edits[-1]
    if state.workspace.read(edit.path) != edit.after:
        raise ToolError(f"{edit.path} changed since the edit")
    state.workspace.write(edit.path, edit.before)
    state.edits.pop()
    state.focus = edit.focus
    return "ok"


def replace_once(data: bytes, old: str, new: str) -> bytes:
    """`data` with the one occurrence of `old` replaced; raises `ToolError` and explains otherwise.

    What `old` and `new` have in common at their ends is matched but not rewritten, so lines that
    the edit repeats unchanged keep their own line endings.
    """
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolError("old is empty")
    if old == new:
        raise ToolError("old and new are the same")
    before = _common(old, new)
    after = _common(old[before:][::-1], new[before:][::-1])
    parts = (old[:before], old[before : len(old) - after], old[len(old) - after :])
    pattern = re.compile(b"(?=(%s)(%s)(%s))" % tuple(_pattern(part) for part in parts))
    matches = list(pattern.finditer(data))
    if not matches:
        raise ToolError("old not found")
    if len(matches) > 1:
        raise ToolError(f"old occurs {len(matches)} times")
    match = matches[0]
    text = new[before : len(new) - after].encode("utf-8", "surrogateescape")
    text = text.replace(b"\n", _line_end(match[1] + match[2] + match[3], data))
    return data[: match.start(2)] + text + data[match.end(2) :]


def _reminder(data: bytes, focus: Focus) -> str:
    """The focused lines, numbered, if they are few."""
    if not focus.last or focus.last - focus.first >= REMINDER_LINES:
        return ""
    shown = data.decode(errors="replace").removeprefix("\ufeff")
    return "\n" + number_lines(shown, focus.first)


def _common(first: str, second: str) -> int:
    """How many characters two texts have in common at their start."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _pattern(text: str) -> bytes:
    """A pattern of the bytes of `text`, whatever the line endings."""
    lines = text.encode("utf-8", "surrogateescape").split(b"\n")
    return LINE_END.join(re.escape(line) for line in lines)


def _line_end(matched: bytes, data: bytes) -> bytes:
    """The line ending of the replaced text, else the one around it."""
    sample = matched if b"\n" in matched else data
    return b"\r\n" if b"\r\n" in sample else b"\n"


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their line feeds; only a line feed ends a line."""
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _span(data: bytes, focus: Focus) -> tuple[int, int]:
    """The byte range of the focused lines."""
    if not focus.last:
        return 0, len(data)
    lines = split_lines(data)
    start = sum(map(len, lines[: focus.first - 1]))
    return start, start + sum(map(len, lines[focus.first - 1 : focus.last]))


def _read_text(state: State, path: str) -> bytes:
    data = state.workspace.read(path)
    if b"\0" in data:
        raise ToolError(f"{path} is binary")
    return data
