"""AdamW as the report uses it in both phases, over the part of the weights that is to be trained.

A frozen weight costs nothing: no gradient is computed for it and it has no moments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

from composer2_jax.core import trees
from composer2_jax.errors import UserError, check_at_least
from composer2_jax.optim.schedules import SCHEDULES, Step


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with decoupled decay of matrices (never of norm scales) and a clipped global norm.

    `schedule` is one of linear, cosine, wsd, constant. `trainable` names subtrees of the
    parameters ("mtp", "sparse_blocks/attention"); empty means all of them.
    """

    learning_rate: float = 3e-4
    schedule: str = "linear"
    warmup_steps: int = 20
    final_fraction: float = 0.1
    b1: float = 0.9
    b2: float = 0.98
    epsilon: float = 1e-8
    weight_decay: float = 0.02
    clip_norm: float = 1.0
    trainable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise UserError(
                f"OptimizerConfig.schedule is {self.schedule!r}; use one of {sorted(SCHEDULES)}"
            )
        check_at_least(self, 0, "learning_rate", "warmup_steps", "final_fraction", "weight_decay")
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"OptimizerConfig.{name} must be at least 0 and below 1")
        if not self.clip_norm > 0:
            raise UserError("OptimizerConfig.clip_norm must be positive (use inf for no clipping)")


class Optimizer(NamedTuple):
    """The update direction, and apart from it the rate, which follows the run's own step."""

    config: OptimizerConfig
    direction: optax.GradientTransformation
    learning_rate: Callable[[Step], Float[Array, ""]]

    def is_trainable(self, path: str) -> bool:
        """Whether the weight or router bias at `path` is trained."""
        return trees.under(path, self.config.trainable)

    def split(self, params: Any) -> tuple[Any, Any]:
        """(trained, frozen) parts of a parameter tree, with None in each other's places."""
        return trees.partition(params, trees.mask_by_path(params, self.is_trainable))

    def init(self, params: Any) -> optax.OptState:
        """Moments of the trained part."""
        trained, _ = self.split(params)
        if not jax.tree.leaves(trained):
            raise UserError(f"OptimizerConfig.trainable={self.config.trainable} names no parameter")
        return self.direction.init(trained)

    def update(
        self, grads: Any, opt_state: optax.OptState, trained: Any, step: Step
    ) -> tuple[Any, optax.OptState]:
        """New values of the trained part, and the new moments."""
        direction, opt_state = self.direction.update(grads, opt_state, trained)
        rate = self.learning_rate(step)
        return jax.tree.map(lambda p, d: (p - rate * d).astype(p.dtype), trained, direction), (
            opt_state
        )


def make_optimizer(config: OptimizerConfig, steps: int) -> Optimizer:
    """The optimizer of a run that lasts `steps` steps."""
    direction = optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.scale_by_adam(config.b1, config.b2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=_decayed),
    )

    def learning_rate(step: Step) -> Float[Array, ""]:
        shape = SCHEDULES[config.schedule]
        return shape(step, config.learning_rate, steps, config.warmup_steps, config.final_fraction)

    return Optimizer(config, direction, learning_rate)


def _decayed(params: Any) -> Any:
    """Matrices, told from norm scales by name: stacked over layers, those are 2-D as well."""
    return trees.mask_by_path(params, lambda path: "norm" not in path.rpartition("/")[2])
