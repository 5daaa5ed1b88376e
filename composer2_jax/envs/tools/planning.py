"""Tools that touch no file: the list of things to do, and the end of the work."""

from collections.abc import Mapping

from composer2_jax.envs.tools.state import State


def todo_write(state: State, arguments: Mapping[str, str]) -> str:
    """Replaces the list; an item that starts with "[x]" is done."""
    state.todo = [item for item in arguments["items"].split("\n") if item.strip()]
    return "ok"


def finish(state: State, arguments: Mapping[str, str]) -> str:
    """The environment ends the episode."""
    return "ok"
