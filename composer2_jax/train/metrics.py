"""metrics.jsonl: one JSON object a logged step, in order, each step once whatever was restarted."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path

from composer2_jax.files import write_atomic


class MetricsLog:
    """Appends steps to a file; opening it at `step` drops what a killed run logged after that."""

    def __init__(self, path: Path, step: int):
        self.path = path
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        write_atomic(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = open(path, "a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Logs finite numbers by name, with the time; what is not finite is logged as null."""
        numbers = {name: float(value) for name, value in values.items()}
        clean = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._file.write(json.dumps({"step": step, "time": time.time(), **clean}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole lines of the file; a cut last one is left out."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
