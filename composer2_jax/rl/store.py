"""Finished groups on disk, so that a killed run re-uses them instead of sampling them again.

One SQLite file in write-ahead mode: a group is there whole or not at all. Together with the
schedule's fixed order this gives exactly-once training: after a restart at update s, places below
s * groups_per_update are in the weights, later ones are read from here or sampled.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from composer2_jax.rl.trajectory import Group


class GroupStore:
    """Groups by place. Written by the learner's thread only."""

    def __init__(self, path: Path):
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS groups (place INTEGER PRIMARY KEY, body TEXT NOT NULL)"
        )
        self._db.commit()

    def add(self, group: Group) -> None:
        """Stores a finished group; a second one for the same place is a bug and raises."""
        with self._db:
            self._db.execute("INSERT INTO groups VALUES (?, ?)", (group.place, group.to_json()))

    def load(self, first_place: int) -> dict[int, Group]:
        """Stored groups from `first_place` on."""
        rows = self._db.execute(
            "SELECT body FROM groups WHERE place >= ? ORDER BY place", (first_place,)
        )
        groups = (Group.from_json(body) for (body,) in rows)
        return {group.place: group for group in groups}

    def forget(self, before_place: int) -> None:
        """Drops groups that a saved checkpoint has in its weights."""
        with self._db:
            self._db.execute("DELETE FROM groups WHERE place < ?", (before_place,))

    def discard(self, places: range) -> None:
        """Drops groups that must be sampled again."""
        with self._db:
            self._db.execute(
                "DELETE FROM groups WHERE place >= ? AND place < ?", (places.start, places.stop)
            )

    def close(self) -> None:
        self._db.close()
