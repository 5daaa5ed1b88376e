"""Answers that depend on their key alone, worked out once and remembered.

Several threads that ask for one key at the same time share one computation: the episodes of a
group often try the same change together. Imported by the grading and the tools; imports the
standard library only.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass
class _Place(Generic[Value]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    values: list[Value] = field(default_factory=list)


class Remembered(Generic[Value]):
    """At most `size` answers; the ones longest unused are forgotten."""

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.places: OrderedDict[str, _Place[Value]] = OrderedDict()

    def get(self, key: str, work_out: Callable[[], tuple[Value, bool]]) -> tuple[Value, bool]:
        """The answer for a key and whether it was remembered. `work_out` returns the answer and
        whether it may be kept."""
        with self.lock:
            place = self.places.setdefault(key, _Place())
            self.places.move_to_end(key)
            if len(self.places) > self.size:
                self.places.popitem(last=False)
        with place.lock:
            if place.values:
                return place.values[0], True
            value, keep = work_out()
            if keep:
                place.values.append(value)
            return value, False

    def clear(self) -> None:
        with self.lock:
            self.places.clear()
