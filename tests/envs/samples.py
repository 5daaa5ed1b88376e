"""A small task for tests of the environment, and short ways to act in it."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from composer2_jax.agent.call_format import parse_turn
from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.envs.task import Task
from composer2_jax.envs.tools import State, call_tool
from composer2_jax.envs.workspace import Workspace

FAULTY = """\
def clamp(x, lo, hi):
    if x < lo:
        return lo
    return x
"""
FIXED = FAULTY.replace("return x\n", "return min(x, hi)\n")
TESTS = """\
from lib.clamp import clamp

assert clamp(5, 0, 3) == 3
"""

TASK = Task(
    id="clamp-0",
    split="train",
    files={"lib/clamp.py": FAULTY, "lib/other.py": "VALUE = 1\n", "test.py": TESTS},
    prompt="clamp(5, 0, 3) is 5 not 3",
    test_command="python3 -S test.py",
    hidden_calls=("clamp(5, 0, 3)", "clamp(-1, 0, 3)", "clamp(1, 0, 3)"),
    hidden_expected=("3", "0", "1"),
    module="lib/clamp.py",
    function="clamp",
    group="clamp",
    fault_kind="line",
    line=4,
    fixed_line="    return min(x, hi)",
)


def task(**changes: Any) -> Task:
    return dataclasses.replace(TASK, **changes)


def tree(**changes: str | None) -> dict[str, bytes]:
    """The final tree of an episode: the task's files, some of them changed, added or deleted."""
    files: dict[str, str | None] = {**TASK.files, **changes}
    return {path: text.encode() for path, text in files.items() if text is not None}


@contextmanager
def state_of(files: dict[str, bytes]) -> Iterator[State]:
    """A tool state over a workspace that holds exactly these bytes."""
    with Workspace.of_files(files) as workspace:
        yield State(TASK, workspace)


def use(state: State, name: str, **arguments: str) -> str:
    return call_tool(state, ToolCall(name, arguments))[0]


def turn(text: str) -> Message:
    message = parse_turn(text + "<|end|>")
    assert isinstance(message, Message), message
    return message
