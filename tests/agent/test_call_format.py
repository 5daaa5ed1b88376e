"""Our call format: what is rendered is parsed back; what is not a turn is refused with a reason."""

import pytest

from composer2_jax.agent.call_format import ParseError, number_lines, parse_turn, render_turn
from composer2_jax.agent.markers import MARKERS, TOOL_NAMES, tool_marker
from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.agent.tool_schemas import SCHEMAS, parse_lines


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("<|read_file|>7|<|end|>", [("read_file", {"line": "7|"})]),
        ("<|read_file|><|arg|>a.py<|end|>", [("read_file", {"path": "a.py"})]),
        ("<|read_file|><|end|>", [("read_file", {})]),
        ("<|edit_file|>a<|arg|><|end|>", [("edit_file", {"old": "a", "new": ""})]),
        ("<|edit_file|> a\n<|arg|>\tb<|end|>", [("edit_file", {"old": " a\n", "new": "\tb"})]),
        ("<|undo_edit|><|end|>", [("undo_edit", {})]),
        ("<|undo_edit|><|run_command|><|end|>", [("undo_edit", {}), ("run_command", {})]),
    ],
)
def test_a_turn_is_parsed_and_rendered_back_to_the_same_text(
    text: str, calls: list[tuple[str, dict[str, str]]]
) -> None:
    message = parse_turn("why " + text)
    assert message == Message("assistant", "why ", tuple(ToolCall(*call) for call in calls))
    assert render_turn(message) == "why " + text


def test_every_tool_has_a_marker_and_a_schema() -> None:
    assert set(TOOL_NAMES) == set(SCHEMAS)
    assert all(tool_marker(name) in MARKERS for name in TOOL_NAMES)
    assert len(set(MARKERS)) == len(MARKERS)


def test_an_argument_that_holds_a_marker_is_not_rendered() -> None:
    call = ToolCall("run_command", {"command": "echo <|end|>"})
    with pytest.raises(ValueError, match="marker"):
        render_turn(Message("assistant", "", (call,)))


def test_a_parse_error_carries_the_raw_turn_to_the_environment() -> None:
    error = parse_turn("<|edit_file|>a<|end|>")
    assert isinstance(error, ParseError)
    assert error.as_message() == Message(
        "assistant", "<|edit_file|>a<|end|>", (), "error: edit_file needs new"
    )


def test_lines_are_numbered_by_line_feeds_alone() -> None:
    assert number_lines("a\r\nb\x0cc\n", 7) == "7|a\n8|b\x0cc"
    assert number_lines("") == ""
    assert number_lines("a\n\n") == "1|a\n2|"


@pytest.mark.parametrize(
    ("text", "lines"), [("7", (7, 7)), ("7|", (7, 7)), ("3-9", (3, 9)), ("3|-9|", (3, 9))]
)
def test_a_line_range_has_four_spellings(text: str, lines: tuple[int, int]) -> None:
    assert parse_lines(text) == lines


@pytest.mark.parametrize("text", ["0", "9-3", "-1", "a", "7||", "1e3", "٧x"])
def test_other_spellings_of_lines_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_lines(text)
