"""A coding task: a small repository with a fault, and hidden calls that tell right from wrong.

Only `files`, `prompt` and `test_command` ever reach the agent. The hidden calls enter a grading
sandbox after the agent is done; the expected answers and the right line never enter any sandbox.
Imported by task makers, the solver, the rollout and the evaluation; imports
the standard library, `errors` and `files`.
"""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from composer2_jax.errors import UserError
from composer2_jax.files import write_atomic


@dataclass(frozen=True)
class Task:
    """One task.

    id, split: its name and its data split; group: tasks of one group never straddle splits.
    files: path -> text of the faulty repository, the visible tests included.
    prompt: what the user asks; test_command: how the visible tests are run.
    module, function: the file and the function with the fault.
    hidden_calls: Python expressions, evaluated beside `module`; hidden_expected: their reprs.
    fault_kind, line, fixed_line: what was broken, where (1-based), and the right line.
    """

    id: str
    split: str
    files: dict[str, str]
    prompt: str
    test_command: str
    hidden_calls: tuple[str, ...]
    hidden_expected: tuple[str, ...]
    module: str
    function: str
    group: str
    fault_kind: str
    line: int
    fixed_line: str
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.files:
            _check_path(path)
        if self.module not in self.files:
            raise ValueError(f"module {self.module!r} is not among the files")
        if not self.hidden_calls or len(self.hidden_calls) != len(self.hidden_expected):
            raise ValueError(
                f"{len(self.hidden_calls)} hidden calls, {len(self.hidden_expected)} expected"
            )

    def to_json(self) -> str:
        """The task as one line of JSON, the same for equal tasks."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> "Task":
        """The task of one line; raises ValueError or TypeError naming the field."""
        value = json.loads(line)
        if not isinstance(value, dict):
            raise TypeError("not an object")
        fields = {f.name: f for f in dataclasses.fields(cls)}
        unknown = sorted(set(value) - set(fields))
        missing = sorted(set(fields) - set(value) - {"metadata"})
        if unknown or missing:
            raise ValueError(f"unknown fields {unknown}, missing fields {missing}")
        return cls(**{name: _checked(name, item) for name, item in value.items()})


_TEXT_MAPS = ("files", "metadata")
_TEXT_LISTS = ("hidden_calls", "hidden_expected")


def _checked(name: str, value: Any) -> Any:
    """A field's value in its own type; raises ValueError or TypeError naming the field."""
    if name in _TEXT_MAPS:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        raise ValueError(f"{name} must map text to text")
    if name in _TEXT_LISTS:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ValueError(f"{name} must be a list of text")
    kind = int if name == "line" else str
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} must be {kind.__name__}")
    return value


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    unsafe = path.startswith("/") or "\0" in path or ".." in parts or ".git" in parts
    if unsafe or not parts:
        raise ValueError(f"{path!r} is not a path inside a repository")


def is_test_path(path: str) -> bool:
    """Whether a file holds tests or steers how they run, by the usual naming."""
    *directories, name = PurePosixPath(path).parts
    stem = name.partition(".")[0]
    return (
        any(part in ("test", "tests", "testing") for part in directories)
        or stem in ("test", "tests", "conftest", "sitecustomize", "usercustomize")
        or stem.startswith("test_")
        or stem.endswith("_test")
    )


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of a JSONL file; a bad line raises a `UserError` naming the file and the line."""
    tasks: list[Task] = []
    try:
        with open(path, encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    tasks.append(Task.from_json(line))
                except (ValueError, TypeError) as error:
                    raise UserError(f"{path}, line {number}: not a task: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with the verb `tasks`") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error.reason}") from error
    return tasks


def write_tasks(path: str | Path, tasks: Iterable[Task]) -> None:
    """Writes tasks as JSONL; the file appears whole or not at all."""
    write_atomic(Path(path), "".join(task.to_json() + "\n" for task in tasks))
