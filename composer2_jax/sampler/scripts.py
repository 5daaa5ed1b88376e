"""Scripted turns: a control that says how much of RL's gain a simple wrapper would have given."""

from __future__ import annotations

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.sampler.records import calls_with_results


def undo_retry(messages: list[Message]) -> Message | None:
    """After an accepted edit run the tests; after a failure undo; after a pass finish.

    Everything else is the policy's: the wrapper adds verification, not knowledge of the fault.
    """
    answered = list(calls_with_results(messages))
    if not answered:
        return None
    call, result = answered[-1]
    if call.name == "edit_file" and result == "ok":
        return Message("assistant", calls=(ToolCall("run_command"),))
    if call.name == "run_command":
        name = "finish" if result.startswith("exit 0") else "undo_edit"
        return Message("assistant", calls=(ToolCall(name),))
    return None
