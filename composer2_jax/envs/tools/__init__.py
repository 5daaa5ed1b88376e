"""The agent's tools. Each is a function of the episode's state and a call's arguments.

File tools run in this process on the workspace, through the kernel's own containment; commands run
in the sandbox. A tool returns text for the model; what the model did wrong becomes a short
"error: ..." and leaves everything as it was. Imported by the environment.
"""

from collections.abc import Callable, Mapping

from composer2_jax.agent.messages import ToolCall
from composer2_jax.agent.tool_schemas import check_call
from composer2_jax.envs.tools import files, planning, searching, shell
from composer2_jax.envs.tools.state import State, ToolError
from composer2_jax.envs.workspace import PathError

Tool = Callable[[State, Mapping[str, str]], str]

TOOLS: dict[str, Tool] = {
    "read_file": files.read_file,
    "search": searching.search,
    "edit_file": files.edit_file,
    "undo_edit": files.undo_edit,
    "run_command": shell.run_command,
    "list_dir": files.list_dir,
    "todo_write": planning.todo_write,
    "finish": planning.finish,
}

__all__ = ["TOOLS", "State", "ToolError", "call_tool", "problem_with"]


def problem_with(call: ToolCall, allowed: tuple[str, ...]) -> str:
    """What is wrong with a call before it is run; empty when nothing is."""
    if call.name not in TOOLS or call.name not in allowed:
        return f"unknown tool {call.name[:32]}"
    return check_call(call.name, call.arguments)


def call_tool(state: State, call: ToolCall) -> tuple[str, bool]:
    """The tool's answer, and whether it is an error."""
    try:
        return TOOLS[call.name](state, call.arguments), False
    except (ToolError, PathError) as error:
        return f"error: {error}", True
