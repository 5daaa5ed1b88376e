"""Malformed calls: each is a parsed call or an explained refusal; none raises, none is dropped."""

import math
from typing import Any

import pytest

from composer2_jax.agent.call_format import ParseError, parse_turn
from composer2_jax.envs import CodingEnv, EnvConfig
from tests.envs.samples import TASK

OWN_FORMAT = {
    "": "turn has no end",
    "<|read_file|>7": "turn has no end",
    "<|end|><|read_file|>7": "text after the end",
    "<|read_file|>7<|end|><|end|>": "text after the end",
    "```\n<|read_file|>7\n```<|end|>": "inside a code fence",
    "<think>so <|read_file|>7</think><|end|>": "inside thinking",
    "<|web_search|>x<|end|>": "unknown tool web_search",
    "<|arg|>x<|end|>": "argument before any call",
    "<|user|>do it<|end|>": "user marker",
    "<|read_file|>7<|tool|>8<|end|>": "tool marker",
    "<|edit_file|>a<|end|>": "edit_file needs new",
    "<|edit_file|><|end|>": "edit_file needs new",
    "<|read_file|>seven<|end|>": "line must be",
    "<|read_file|>0<|end|>": "no lines",
    "<|read_file|>1<|arg|>a.py<|arg|>b.py<|end|>": "takes 2 arguments, not 3",
    "<|undo_edit|>now<|end|>": "takes 0 arguments, not 1",
    "<|undo_edit|><|read_file|>x<|end|>": "line must be",
}


@pytest.mark.parametrize("text", OWN_FORMAT)
def test_a_malformed_turn_is_refused_whole_with_a_reason(text: str) -> None:
    error = parse_turn(text)
    assert isinstance(error, ParseError)
    assert error.text.startswith("error: ") and OWN_FORMAT[text] in error.text
    assert len(error.text) <= 60
    assert error.raw == text


def call(arguments: Any, name: Any = "edit_file") -> dict[str, Any]:
    return {"role": "assistant", "content": "", "calls": [{"name": name, "arguments": arguments}]}


EDIT = {"old": "return x", "new": "return hi"}
DICTS: list[tuple[Any, str]] = [
    ({"role": "assistant", "calls": [{"name": "edit_file"}]}, "arguments are missing"),
    (call({"command": "echo a\0b"}, "run_command"), "NUL in command"),
    (call({**EDIT, "new": "a\0b"}), "NUL in new"),
    (call({"path": "a\0b"}, "read_file"), "NUL in path"),
    (call({"command": "echo \ud800"}, "run_command"), "command is not text"),
    (call({"items": "\udfff"}, "todo_write"), "items is not text"),
    (call({"command": "echo " + "x" * 200_000}, "run_command"), "200005 bytes; write a file"),
    (call(EDIT, "\ud800"), "unknown tool \ufffd"),
    (call('{"old": "return x", "new": "return hi"}'), "must be an object"),
    (call(""), "must be an object"),
    (call(None), "must be an object"),
    (call({**EDIT, "path": None}), "must be text"),
    (call({**EDIT, "count": 1}), "must be text"),
    (call({**EDIT, "new": math.nan}), "must be text"),
    (call({**EDIT, "where": "x"}), "takes no where"),
    (call({"old": "return x"}), "needs new"),
    (call({}), "needs old"),
    (call(EDIT, "Edit_File"), "unknown tool"),
    (call(EDIT, ""), "needs a name"),
    (call(EDIT, 7), "needs a name"),
    ({"role": "assistant", "calls": "edit_file"}, "must be a list"),
    ({"role": "assistant", "calls": ["edit_file"]}, "must be an object"),
    ({"role": "user", "content": "hello"}, "not user"),
    ({"content": "hello"}, "needs a role"),
    ({"role": "assistant", "content": "no call"}, "no tool call"),
    ({}, "needs a role"),
    ([], "must be an object"),
    (None, "must be an object"),
    ("<|read_file|><|end|>", "must be an object"),
]


@pytest.mark.parametrize(("action", "reason"), DICTS)
def test_a_malformed_action_runs_nothing_and_is_answered(action: Any, reason: str) -> None:
    env = CodingEnv(TASK)
    env.reset()
    before = env.workspace.digest()
    messages, reward, terminated, truncated, info = env.step(action)
    assert [message["role"] for message in messages] == ["tool"]
    assert messages[0]["content"].startswith("error: ") and reason in messages[0]["content"]
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["tool_errors"] == 1 and info["counts"]["malformed"] == 1
    assert env.workspace.digest() == before
    env.close()


def test_one_bad_call_keeps_the_good_ones_of_its_turn_from_running() -> None:
    env = CodingEnv(TASK)
    env.reset()
    good = {"name": "edit_file", "arguments": {**EDIT, "path": "lib/clamp.py"}}
    bad = {"name": "edit_file", "arguments": {"old": "x"}}
    before = env.workspace.digest()
    env.step({"role": "assistant", "calls": [good, bad]})
    assert env.workspace.digest() == before
    env.step({"role": "assistant", "calls": [good]})
    assert env.workspace.digest() != before
    env.close()


def test_an_episode_of_malformed_turns_is_graded_and_earns_zero() -> None:
    # Leaving such an episode out would teach the model to break its calls on hard tasks.
    env = CodingEnv(TASK, EnvConfig(max_turns=3))
    env.reset()
    for turn in range(3):
        *_, reward, terminated, truncated, info = env.step(parse_turn("<|edit_file|>"))
        assert truncated == (turn == 2)
    assert (reward, terminated) == (0.0, False)
    assert info["grade"]["reward"] == 0.0 and info["grade"]["infra_error"] == ""
    assert info["tool_errors"] == 3
    env.close()
