"""Rewards as named components, each logged (report, section 4.2)."""

from __future__ import annotations

import dataclasses
import math

from composer2_jax.errors import UserError, check_at_least
from composer2_jax.sampler.records import Effort


@dataclasses.dataclass(frozen=True)
class EffortWeights:
    """Weights of the six quantities whose sum is the length penalty's x.

    The report names the quantities, not the weights. Tokens count alike here, a call and a turn
    as much as a few tokens.
    """

    thinking_tokens: float = 1.0
    tool_calling_tokens: float = 1.0
    tool_output_tokens: float = 0.0
    final_message_tokens: float = 1.0
    tool_calls: float = 4.0
    turns: float = 4.0

    def of(self, effort: Effort) -> float:
        """The weighted sum of what an episode spent."""
        names = [field.name for field in dataclasses.fields(effort)]
        return sum(getattr(self, name) * getattr(effort, name) for name in names)


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """`correct` is worth 1; the other components are costs, off at 0.

    `length` scales C_{k,q}(x); `invalid_call` is charged for each malformed or refused call, which
    therefore stays in its group as a bad example instead of being thrown away.
    """

    length: float = 0.0
    length_k: float = 0.01
    length_q: float = 0.5
    effort: EffortWeights = EffortWeights()
    invalid_call: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(self, 0, "length", "length_q", "invalid_call")
        if not self.length_k > 0:
            raise UserError(f"RewardConfig.length_k = {self.length_k} must be above 0")


def length_penalty(x: float, k: float, q: float) -> float:
    """C_{k,q}(x) = ((1 + k x)^(1-q) - 1) / (k (1 - q)): concave, increasing, slope 1 at 0.

    Written with expm1 and log1p, which stay exact near q = 1, where it is log(1 + k x) / k.
    """
    if x < 0 or k <= 0:
        raise ValueError(f"length_penalty needs x >= 0 and k > 0, not x={x}, k={k}")
    log = math.log1p(k * x)
    if q == 1.0:
        return log / k
    return math.expm1((1.0 - q) * log) / (k * (1.0 - q))


def components(
    correct: float, effort: Effort, invalid_calls: int, config: RewardConfig
) -> dict[str, float]:
    """The reward's parts by name; the reward is their sum."""
    parts = {"correct": correct}
    if config.length:
        x = config.effort.of(effort)
        parts["length"] = -config.length * length_penalty(x, config.length_k, config.length_q)
    if config.invalid_call:
        parts["invalid_call"] = -config.invalid_call * invalid_calls
    return parts
