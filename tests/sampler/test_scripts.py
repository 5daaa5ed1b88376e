"""The scripted control adds verification to a policy, and nothing else."""

import pytest

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.sampler import scripts


@pytest.mark.parametrize(
    ("name", "arguments", "result", "written"),
    [
        ("edit_file", {"old": "a", "new": "b"}, "ok", "run_command"),
        ("edit_file", {"old": "a", "new": "b"}, "error: old not found", None),
        ("run_command", {}, "exit 0", "finish"),
        ("run_command", {}, "exit 1", "undo_edit"),
        ("undo_edit", {}, "ok", None),
        ("read_file", {}, "1|x", None),
    ],
)
def test_edits_are_tested_and_failures_undone(
    name: str, arguments: dict[str, str], result: str, written: str | None
) -> None:
    messages = [
        Message("user", "f(1) is 2 not 3"),
        Message("assistant", calls=(ToolCall(name, arguments),)),
        Message("tool", result),
    ]
    turn = scripts.undo_retry(messages)
    assert (turn and turn.calls[0].name) == written


def test_the_first_turn_is_the_policys() -> None:
    assert scripts.undo_retry([Message("user", "x")]) is None
