"""Small files that appear whole or not at all. Imports the standard library and `errors`."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from composer2_jax.errors import UserError


def partial_path(path: Path) -> Path:
    """Where a file is written before it is complete; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.partial")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part."""
    partial = partial_path(path)
    try:
        with open(partial, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes one JSON value; array scalars of any library become plain numbers."""
    text = json.dumps(value, indent=2, default=lambda leaf: leaf.item())
    write_atomic(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; {} where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON ({error}): delete it and run again") from error


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Writes one JSON value a line."""
    lines = (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n" for value in values)
    write_atomic(path, "".join(lines))


def read_json_lines(path: Path) -> list[Any]:
    """The value of every line; raises OSError or ValueError, for whose text the caller knows."""
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
