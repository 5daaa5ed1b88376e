"""Messages of a conversation with the agent, and their JSON form.

A message is what training, evaluation, serving and the viewer pass around; how it becomes tokens
is decided in `call_format` and `transcript`. Imports the standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES: tuple[str, ...] = ("system", "user", "assistant", "tool")


class MalformedMessage(ValueError):
    """A message dict that is not a message; the text says what is wrong with it."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool: its name and its arguments by parameter name, all of them text."""

    name: str
    arguments: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    @classmethod
    def from_dict(cls, value: Any) -> "ToolCall":
        """A call from its JSON form. Strict: arguments are never guessed or coerced."""
        if not isinstance(value, Mapping):
            raise MalformedMessage(f"a call must be an object, not {type(value).__name__}")
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise MalformedMessage("a call needs a name")
        if "arguments" not in value:
            raise MalformedMessage(f"{name}: arguments are missing")
        arguments = value["arguments"]
        if not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            raise MalformedMessage(f"{name}: arguments must be an object, not {kind}")
        for key, argument in arguments.items():
            if not isinstance(key, str) or not isinstance(argument, str):
                kind = type(argument).__name__
                raise MalformedMessage(f"{name}: argument {key} must be text, not {kind}")
        return cls(name, dict(arguments))


@dataclass(frozen=True)
class Message:
    """One message. `error` is set on an assistant turn that could not be parsed: the raw text then
    stands in `content`, there are no calls, and the environment answers with the error."""

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    error: str = ""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise MalformedMessage(f"unknown role {self.role!r}")
        if self.calls and self.role != "assistant":
            raise MalformedMessage(f"a {self.role} message cannot hold calls")

    def to_dict(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "role": self.role,
            "content": self.content,
            "calls": [call.to_dict() for call in self.calls],
        }
        if self.error:
            value["error"] = self.error
        return value

    @classmethod
    def from_dict(cls, value: Any) -> "Message":
        """A message from its JSON form; raises `MalformedMessage` on anything else."""
        if not isinstance(value, Mapping):
            raise MalformedMessage(f"a message must be an object, not {type(value).__name__}")
        role, content = value.get("role"), value.get("content", "")
        calls, error = value.get("calls", ()), value.get("error", "")
        if not isinstance(role, str):
            raise MalformedMessage("a message needs a role")
        if not isinstance(content, str) or not isinstance(error, str):
            raise MalformedMessage("content must be text")
        if not isinstance(calls, list | tuple):
            raise MalformedMessage(f"calls must be a list, not {type(calls).__name__}")
        return cls(role, content, tuple(ToolCall.from_dict(call) for call in calls), error)
