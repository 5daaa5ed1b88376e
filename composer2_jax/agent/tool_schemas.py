"""What each tool of the agent takes: one declarative table, in the order of the call format.

The parser, the environment, the prompt and the server all read this table, so a call that one of
them accepts is accepted by all. Imports the standard library only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# One argument of a process may have 128 KiB, the shell's own words included.
MAX_COMMAND_BYTES = 100_000
LINES_PATTERN = re.compile(r"(\d{1,7})\|?(?:-(\d{1,7})\|?)?")


@dataclass(frozen=True)
class Parameter:
    """A positional parameter. `kind` is "text", "lines" ("7", "7|" or "3|-9|") or "command"."""

    name: str
    description: str
    required: bool = False
    kind: str = "text"


@dataclass(frozen=True)
class ToolSchema:
    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()


SCHEMAS: dict[str, ToolSchema] = {
    schema.name: schema
    for schema in (
        ToolSchema(
            "read_file",
            "Print a file, or some of its lines, with line numbers.",
            (
                Parameter("line", "lines to print; empty = the whole file", kind="lines"),
                Parameter("path", "file; empty = the one last read"),
            ),
        ),
        ToolSchema(
            "search",
            "Find the lines of the repository that match words best.",
            (Parameter("query", "words to look for; empty = the words of the task"),),
        ),
        ToolSchema(
            "edit_file",
            "Replace text that occurs exactly once in the lines last read.",
            (
                Parameter("old", "the text to replace", required=True),
                Parameter("new", "the text to put in its place", required=True),
                Parameter("path", "file; empty = the one last read"),
            ),
        ),
        ToolSchema("undo_edit", "Take back the last edit."),
        ToolSchema(
            "run_command",
            "Run a shell command in the repository.",
            (Parameter("command", "the command; empty = the task's tests", kind="command"),),
        ),
        ToolSchema(
            "list_dir",
            "List the files of a directory.",
            (Parameter("path", "directory; empty = the repository"),),
        ),
        ToolSchema(
            "todo_write",
            "Replace the list of things to do.",
            (Parameter("items", "one item a line, '[x] ' before finished ones", required=True),),
        ),
        ToolSchema(
            "finish",
            "End the work.",
            (Parameter("message", "a last word to the user"),),
        ),
    )
}


def parse_lines(text: str) -> tuple[int, int]:
    """The 1-based inclusive line range that `text` names; raises ValueError if it names none."""
    match = LINES_PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError("line must be N or N-M")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if first < 1 or last < first:
        raise ValueError(f"no lines {first}-{last}")
    return first, last


def check_call(name: str, arguments: Mapping[str, str]) -> str:
    """What is wrong with a call, in a few words for the model; empty when it is well-formed."""
    schema = SCHEMAS.get(name)
    if schema is None:
        return f"unknown tool {name[:32]}"
    known = {parameter.name: parameter for parameter in schema.parameters}
    for key in arguments:
        if key not in known:
            return f"{name} takes no {key[:32]}"
    for parameter in schema.parameters:
        value = arguments.get(parameter.name)
        if value is None and parameter.required:
            return f"{name} needs {parameter.name}"
        problem = _problem_with_value(value or "", parameter)
        if problem:
            return f"{name}: {problem}"
    return ""


def _problem_with_value(value: str, parameter: Parameter) -> str:
    if "\0" in value:
        return f"NUL in {parameter.name}"
    try:
        # Escaped surrogates stand for bytes of a file that is not UTF-8; others for nothing.
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return f"{parameter.name} is not text"
    if parameter.kind == "command" and len(data) > MAX_COMMAND_BYTES:
        return f"{parameter.name} of {len(data)} bytes; write a file and run it"
    if value and parameter.kind == "lines":
        try:
            parse_lines(value)
        except ValueError as error:
            return str(error)
    return ""
