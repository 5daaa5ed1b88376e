"""Gymnasium spaces of chat messages: what a turn and its answer look like.

A message is a dict as `Message.to_dict` makes it. Gymnasium's own text space knows neither the
whole of unicode nor nesting. Imported by `coding_env`; imports gymnasium only.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium

from composer2_jax.agent.messages import MalformedMessage, Message, ToolCall
from composer2_jax.agent.tool_schemas import SCHEMAS

MessageDict = dict[str, Any]


class MessageSpace(gymnasium.Space[MessageDict]):
    """Assistant messages; a sample is one well-formed call of one of the tools."""

    def __init__(self, tools: Sequence[str], seed: int | None = None) -> None:
        super().__init__(None, None, seed)
        self.tools = tuple(tools)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> MessageDict:
        name = self.tools[int(self.np_random.integers(len(self.tools)))]
        arguments = {
            parameter.name: f"word {self.np_random.integers(100)}"
            for parameter in SCHEMAS[name].parameters
            if parameter.required
        }
        return Message("assistant", "", (ToolCall(name, arguments),)).to_dict()

    def contains(self, x: Any) -> bool:
        return _is_message(x, ("assistant",))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace) and self.tools == other.tools

    def __hash__(self) -> int:
        return hash(self.tools)

    def __repr__(self) -> str:
        return f"MessageSpace({self.tools})"


class MessagesSpace(gymnasium.Space[list[MessageDict]]):
    """Lists of messages that the harness writes: the opening, or the answers of tools."""

    ROLES = ("system", "user", "tool")

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> list[MessageDict]:
        return [Message("tool", f"word {self.np_random.integers(100)}").to_dict()]

    def contains(self, x: Any) -> bool:
        return isinstance(x, list) and all(_is_message(item, self.ROLES) for item in x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessagesSpace)

    def __hash__(self) -> int:
        return hash(MessagesSpace)

    def __repr__(self) -> str:
        return "MessagesSpace()"


def _is_message(value: Any, roles: Sequence[str]) -> bool:
    try:
        return Message.from_dict(value).role in roles
    except MalformedMessage:
        return False
