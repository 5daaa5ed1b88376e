"""Files that appear whole or not at all. Imports the standard library only."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def partial_path(path: Path) -> Path:
    """Where a file is written before it is complete; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(path.name + ".partial")


def write_atomically(path: Path, content: bytes) -> None:
    partial = partial_path(path)
    with open(partial, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    lines = (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n" for value in values)
    write_atomically(path, "".join(lines).encode())


def read_json_lines(path: Path) -> list[Any]:
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
