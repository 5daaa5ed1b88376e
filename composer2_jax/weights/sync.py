"""Versioned weights for a sampler in the same process.

`publish` copies, since the trainer donates its buffers to the next step. Versions count updates and
only rise; a reader that asks late gets the newest, never an older one again.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Variables = Any


class Versioned(NamedTuple):
    """One weight version: `version` counts the updates it has seen."""

    version: int
    variables: Variables


class InProcessWeights:
    """One writer, any number of readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Versioned | None = None

    def publish(self, version: int, variables: Variables) -> None:
        copied = jax.tree.map(jnp.copy, variables)
        with self._lock:
            if self._latest is not None and version <= self._latest.version:
                raise ValueError(f"weights {version} after {self._latest.version}")
            self._latest = Versioned(version, copied)

    def newer_than(self, version: int) -> Versioned | None:
        """The newest weights if they are newer than `version`."""
        with self._lock:
            latest = self._latest
        return latest if latest is not None and latest.version > version else None
