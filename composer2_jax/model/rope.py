"""Rotary positions with YaRN context extension and both of DeepSeek's magnitude factors."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from composer2_jax.model.config import MLAConfig, YarnConfig


def inverse_frequencies(dim: int, theta: float, yarn: YarnConfig | None) -> np.ndarray:
    """[dim/2] angular frequencies; under YaRN a ramp from extrapolation to interpolation."""
    frequencies = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if yarn is None or yarn.factor == 1.0:
        return frequencies
    low = _turns_to_index(yarn.beta_fast, dim, theta, yarn.original_length)
    high = _turns_to_index(yarn.beta_slow, dim, theta, yarn.original_length)
    low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
    return frequencies / yarn.factor * ramp + frequencies * (1.0 - ramp)


def rotation_magnitude(yarn: YarnConfig | None) -> float:
    """Factor on cos and sin: the ratio of the two mscales (1 when they are equal)."""
    if yarn is None:
        return 1.0
    return _mscale(yarn.factor, yarn.mscale) / _mscale(yarn.factor, yarn.mscale_all_dim)


def softmax_magnitude(yarn: YarnConfig | None) -> float:
    """Factor on the softmax scale: mscale_all_dim squared, since queries and keys both carry it."""
    return 1.0 if yarn is None else _mscale(yarn.factor, yarn.mscale_all_dim) ** 2


def rotate(
    x: Float[Array, "B T *heads K"], positions: Int[Array, "B T"], config: MLAConfig
) -> Float[Array, "B T *heads K"]:
    """Applies the rotation for `positions` to the last axis.

    `rope_interleave` says how a checkpoint pairs components: (0,1),(2,3),... when true, else
    (0,K/2),(1,K/2+1),... The result is stored in the second order either way: queries and keys
    are permuted alike, so their products do not change.
    """
    frequencies = inverse_frequencies(x.shape[-1], config.rope_theta, config.yarn)
    angles = positions[..., None].astype(jnp.float32) * jnp.asarray(frequencies, jnp.float32)
    angles = angles.reshape(positions.shape + (1,) * (x.ndim - 3) + angles.shape[-1:])
    magnitude = rotation_magnitude(config.yarn)
    cos, sin = jnp.cos(angles) * magnitude, jnp.sin(angles) * magnitude
    wide = x.astype(jnp.float32)
    if config.rope_interleave:
        first, second = wide[..., 0::2], wide[..., 1::2]
    else:
        first, second = jnp.split(wide, 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


def _turns_to_index(turns: float, dim: int, theta: float, length: int) -> float:
    """The (fractional) frequency index whose wave turns `turns` times within `length`."""
    return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0
