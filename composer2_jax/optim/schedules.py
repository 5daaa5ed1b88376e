"""Learning-rate schedules as plain functions of the step.

The report gives no rates or shapes for phase 1; all three usual shapes are here. Each rises
linearly over `warmup` steps, and ends at `final_fraction` of the peak after `steps` steps.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Step = Int[Array, ""] | int


def linear(
    step: Step, peak: float, steps: int, warmup: int, final_fraction: float
) -> Float[Array, ""]:
    """Straight down from the peak to the end."""
    return _warmed(step, warmup) * peak * (1.0 - (1.0 - final_fraction) * _way(step, warmup, steps))


def cosine(
    step: Step, peak: float, steps: int, warmup: int, final_fraction: float
) -> Float[Array, ""]:
    """Half a cosine wave down to the end."""
    height = 0.5 * (1.0 + jnp.cos(jnp.pi * _way(step, warmup, steps)))
    return _warmed(step, warmup) * peak * (final_fraction + (1.0 - final_fraction) * height)


def warmup_stable_decay(
    step: Step, peak: float, steps: int, warmup: int, final_fraction: float, decay: float = 0.2
) -> Float[Array, ""]:
    """Level until the last `decay` of all steps, then straight down."""
    way = _way(step, round(steps * (1.0 - decay)), steps)
    return _warmed(step, warmup) * peak * (1.0 - (1.0 - final_fraction) * way)


def constant(
    step: Step, peak: float, steps: int, warmup: int, final_fraction: float
) -> Float[Array, ""]:
    """Level after the warm-up; `steps` and `final_fraction` play no part."""
    del steps, final_fraction
    return _warmed(step, warmup) * peak


SCHEDULES = {
    "linear": linear,
    "cosine": cosine,
    "wsd": warmup_stable_decay,
    "constant": constant,
}


def _warmed(step: Step, warmup: int) -> Float[Array, ""]:
    """1/warmup at step 0, so that no step is wasted on a rate of 0; 1 from step warmup-1 on."""
    return jnp.minimum(1.0, (jnp.asarray(step, jnp.float32) + 1.0) / max(warmup, 1))


def _way(step: Step, start: int, end: int) -> Float[Array, ""]:
    """How much of the way from `start` to `end` lies behind, 0 to 1."""
    return jnp.clip((jnp.asarray(step, jnp.float32) - start) / max(end - start, 1), 0.0, 1.0)
