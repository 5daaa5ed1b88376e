"""Which prompt is sampled when: bounded staleness by admission, never by throwing work away.

Prompts have a fixed order (a seeded permutation, each used once: single epoch), and update s
trains on prompts [s*g, (s+1)*g). A prompt may start once the update that will use it is at most
`max_staleness` updates ahead of the weights the sampler holds. So batches do not depend on timing,
long episodes are not skipped in favour of short ones, and a restart loses nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The order of prompts and what may start."""

    num_prompts: int
    groups_per_update: int
    max_staleness: int
    seed: int
    max_updates: int = 0  # 0: as many as one epoch gives

    @property
    def num_updates(self) -> int:
        """Complete updates; at most one epoch over the prompts."""
        epoch = self.num_prompts // self.groups_per_update
        return min(epoch, self.max_updates or epoch)

    def order(self) -> list[int]:
        """Prompt at each place of the epoch."""
        return np.random.default_rng(self.seed).permutation(self.num_prompts).tolist()

    def batch(self, update: int) -> range:
        """Places that update number `update` (from 0) trains on."""
        return range(update * self.groups_per_update, (update + 1) * self.groups_per_update)

    def admissible(self, version: int) -> int:
        """Places below this one may be sampled by weights that have seen `version` updates."""
        updates = min(version + self.max_staleness + 1, self.num_updates)
        return max(updates, 0) * self.groups_per_update

    def missing(self, first_update: int, stored: Iterable[int]) -> list[int]:
        """Places still to sample after a restart at `first_update`, oldest first."""
        have = set(stored)
        end = self.num_updates * self.groups_per_update
        return [p for p in range(first_update * self.groups_per_update, end) if p not in have]
