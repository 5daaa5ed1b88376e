"""One episode as training sees it: the sampled ids themselves, never re-tokenised."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Aligned token lists (`mask` 1: sampled by the model) and the episode's reward.

    `counted` False marks an infrastructure failure: it leaves its group's statistics, unlike a
    wrong answer or a malformed call, which stays in with the reward it earned.
    """

    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    reward: float
    components: dict[str, float]
    counted: bool
    statistics: dict[str, float]

    def __post_init__(self) -> None:
        sizes = {len(self.tokens), len(self.mask), len(self.logprobs), len(self.versions)}
        if len(sizes) != 1:
            raise ValueError(f"token lists of different lengths: {sorted(sizes)}")
        if self.mask and self.mask[0]:
            raise ValueError("a trajectory begins with a sampled token, not with a prompt")

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Trajectory:
        """A trajectory from its JSON form, where lists stand for tuples."""
        fields: dict[str, Any] = {
            name: tuple(item) if isinstance(item, list) else item for name, item in value.items()
        }
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Group:
    """All trajectories of the prompt at one place of the schedule."""

    place: int
    task_id: str
    members: tuple[Trajectory, ...]

    @property
    def mixed(self) -> bool:
        """Whether some counted members solved the task and others did not."""
        return len({m.components.get("correct") for m in self.members if m.counted}) > 1

    def to_json(self) -> str:
        members = [vars(member) for member in self.members]
        return json.dumps({"place": self.place, "task_id": self.task_id, "members": members})

    @classmethod
    def from_json(cls, text: str) -> Group:
        value: dict[str, Any] = json.loads(text)
        members = tuple(Trajectory.from_dict(member) for member in value["members"])
        return cls(value["place"], value["task_id"], members)
