"""Numeric conventions: losses are (sum, weight) pairs, reduced in exactly one place.

A loss that divides early makes the gradient depend on how a batch was split or packed; carrying
the sum and its weight apart keeps microbatched = whole batch and packed = unpacked.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class WeightedMetric(NamedTuple):
    """An unreduced metric: `total` is a sum over tokens (or groups), `weight` what to divide by."""

    total: Float[Array, ""]
    weight: Float[Array, ""]

    def mean(self) -> Float[Array, ""]:
        """total / weight, and 0 (not NaN) where nothing was counted."""
        return jnp.where(self.weight > 0, self.total / jnp.maximum(self.weight, 1e-9), 0.0)


def masked_sum(
    values: Float[Array, "*shape"], mask: Float[Array, "*shape"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum of `values` where `mask` is set and the number of such places.

    Masked-out values are replaced before the sum, so that an inf or NaN in a pad stays out of it.
    """
    kept = jnp.where(mask > 0, values * mask, 0.0)
    return kept.sum(), mask.sum()
