"""What one episode's tools share: the workspace, the focus, the edits so far.

Imported by the tools and the environment; imports the standard library only.
"""

from dataclasses import dataclass, field

from composer2_jax.envs.sandbox import Limits
from composer2_jax.envs.task import Task
from composer2_jax.envs.workspace import Workspace


class ToolError(Exception):
    """The model's mistake, in a few words that help it to do better."""


@dataclass(frozen=True)
class Focus:
    """The file last read and the lines of it that were shown; `last` 0 means all of them."""

    path: str
    first: int = 1
    last: int = 0


@dataclass(frozen=True)
class Edit:
    """An edit that can be taken back: the file before and after it, and the focus before."""

    path: str
    before: bytes
    after: bytes
    focus: Focus


@dataclass
class State:
    """The episode's state outside the workspace."""

    task: Task
    workspace: Workspace
    limits: Limits = field(default_factory=Limits)
    output_chars: int = 0
    search_hits: int = 1
    remember_tests: bool = False
    focus: Focus | None = None
    edits: list[Edit] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    remembered: int = 0  # test runs answered from memory

    def focused(self, path: str = "") -> Focus:
        """The focus, or the whole of `path` when that is another file."""
        path = path.removeprefix("./")
        if self.focus is not None and path in ("", self.focus.path):
            return self.focus
        if not path:
            raise ToolError("no file read yet")
        return Focus(path)
