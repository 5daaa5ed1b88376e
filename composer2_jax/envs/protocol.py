"""What a fleet and its workers say to each other. Imports the standard library only."""

from dataclasses import dataclass, field
from typing import Any

from composer2_jax.agent.messages import Message


@dataclass(frozen=True)
class StepResult:
    """What an episode answered: the new messages, and the reward with the last of them."""

    messages: tuple[Message, ...]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    episode: int = -1

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Request:
    """`verb`: "reset" (argument: the task), "step" (argument: the turn), "truncate" or "close"."""

    number: int
    verb: str
    episode: int
    argument: Any = None


@dataclass(frozen=True)
class Reply:
    """The answer to a request: a result, or one of three kinds of failure."""

    number: int
    result: StepResult | None = None
    infra_error: str = ""
    user_error: str = ""
    bug: str = ""
