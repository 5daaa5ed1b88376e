"""Running a command in the sandbox, and its answer within the output budget."""

import re
from collections.abc import Mapping

from composer2_jax.envs import sandbox
from composer2_jax.envs.remembered import Remembered
from composer2_jax.envs.sandbox import CommandResult, InfraError
from composer2_jax.envs.tools.state import State

TRIES = 3
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
MARK = "\n[... {} characters left out ...]\n"
STOPPED = {
    "time": " (timed out)",
    "cpu": " (timed out)",
    "output": " (too much output)",
    "memory": " (too much memory)",
    "disk": " (disk full)",
}


def run_command(state: State, arguments: Mapping[str, str]) -> str:
    """Runs the command, or the task's tests, in a fresh sandbox on the workspace."""
    command = arguments.get("command", "")
    result = run_tests(state) if not command else run_shell(state, command)
    answer = f"exit {result.exit_code}"
    if not state.output_chars:
        return answer
    output = clip(clean(result.output).strip("\n"), state.output_chars)
    return answer + STOPPED.get(result.stopped, "") + (f"\n{output}" if output else "")


def run_shell(state: State, command: str) -> CommandResult:
    """Runs a shell command; a sandbox that could not start is tried again."""
    for attempt in range(TRIES):
        try:
            return sandbox.run(["sh", "-c", command], state.workspace.path, state.limits)
        except InfraError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable")


_memory: Remembered[CommandResult] = Remembered()


def run_tests(state: State) -> CommandResult:
    """Runs the task's own tests.

    With `remember_tests`, a run that ended by itself and left the tree as it found it is answered
    from memory when the same tests meet the same tree again: many episodes of a group try the same
    change. How often that happened is counted.
    """
    command = state.task.test_command
    if not state.remember_tests:
        return run_shell(state, command)
    before = state.workspace.digest()

    def work_out() -> tuple[CommandResult, bool]:
        result = run_shell(state, command)
        return result, not result.stopped and state.workspace.digest() == before

    key = f"{state.task.id}\0{command}\0{state.limits}\0{before}"
    result, remembered = _memory.get(key, work_out)
    state.remembered += remembered
    return result


def clean(text: str) -> str:
    """Text without terminal control: escape sequences and control characters are dropped."""
    return CONTROLS.sub("", ESCAPES.sub("", text.replace("\r\n", "\n")))


def clip(text: str, budget: int) -> str:
    """At most about `budget` characters: the head and the tail around an explicit mark."""
    if len(text) <= budget:
        return text
    head = (budget + 1) // 2
    tail = budget - head
    return text[:head] + MARK.format(len(text) - budget) + text[len(text) - tail :]
