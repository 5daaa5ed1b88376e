"""A run's work directory: who owns it, which config made it, how long it took and what it used.

    DIR/.lock        held for as long as the process lives (fcntl, so `kill -9` frees it)
    DIR/config.gin   the effective config; another config may not use the same directory
    DIR/wall.json    seconds and peak memory so far, kept over restarts
    DIR/done.json    the verb's metrics; its presence means that the run is complete

The standard library, `errors` and `files` only. Imported by `cli.py` and `quickstart.py`.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from composer2_jax.errors import UserError
from composer2_jax.files import read_json, write_json

_DISK_ERRORS = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "disk quota exceeded",
    errno.EROFS: "read-only file system",
}


def disk_problem(error: BaseException) -> str | None:
    """Says in words what is wrong with the disk, or None when `error` is about something else.

    Storage libraries wrap a full disk in errors of their own, which keep only the words of it.
    """
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        where = f" ({error.filename})" if error.filename else ""
        return _DISK_ERRORS[error.errno] + where
    full = ("No space left on device", "database or disk is full")
    if any(words in str(error) for words in full):
        return _DISK_ERRORS[errno.ENOSPC]
    return None


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes `workdir` and keeps every other process out of it."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = open(workdir / ".lock", "a+", encoding="utf-8")
    except OSError as error:
        problem = disk_problem(error) or f"{error.strerror} ({error.filename})"
        raise UserError(f"cannot write to --workdir={workdir}: {problem}") from error
    with file:
        # lockf, not flock: a lock of this process alone, which no forked worker keeps alive.
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise UserError(
                f"--workdir={workdir} is in use by process {owner}: wait for it or stop it"
            ) from error
        _note_owner(file)
        yield


def _note_owner(file: IO[str]) -> None:
    """Leaves our process id in the lock file; a full disk may cost the note, not the lock."""
    with contextlib.suppress(OSError):
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()


def check_config(workdir: Path, config: str) -> None:
    """Raises UserError where `workdir` was made by another config; names what differs first."""
    path = workdir / "config.gin"
    if not path.exists():
        return
    old, new = _bindings(path.read_text(encoding="utf-8")), _bindings(config)
    for name in [*new, *old]:
        if old.get(name) != new.get(name):
            was, now = old.get(name, "(not set)"), new.get(name, "(not set)")
            raise UserError(
                f"--workdir={workdir} was made with {name} = {was}, this run has {now}: "
                f"use another --workdir, or delete this one"
            )


def _bindings(config: str) -> dict[str, str]:
    """The bindings of a config as gin prints it: one a line, continuation lines indented."""
    found: dict[str, str] = {}
    name = ""
    for line in config.splitlines():
        if line.startswith((" ", "\t")) and name:
            found[name] = (found[name].removesuffix("\\").rstrip() + " " + line.strip()).strip()
        elif "=" in line and not line.startswith("#"):
            name, _, value = (part.strip() for part in line.partition("="))
            found[name] = value
    return found


class Meter:
    """Wall seconds and peak memory of this process and all its descendants, over restarts.

    `earlier_seconds` is what the run took before the meter was made: imports, above all.
    A thread adds up the resident memory of the process tree every `interval` seconds (pages that
    processes share are counted once for each, so this is an upper bound) and keeps `wall.json`
    fresh, so that a killed run has lost at most `save_every` seconds of the account.
    """

    def __init__(
        self,
        path: Path,
        earlier_seconds: float = 0.0,
        interval: float = 0.5,
        save_every: float = 5.0,
    ) -> None:
        self._path, self._interval, self._save_every = path, interval, save_every
        earlier = read_json(path)
        self._earlier_seconds = float(earlier.get("wall_seconds", 0.0)) + earlier_seconds
        self.starts = int(earlier.get("starts", 0)) + 1
        self.peak_rss_bytes = int(earlier.get("peak_rss_bytes", 0))
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="meter", daemon=True)

    def __enter__(self) -> "Meter":
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()
        self._measure()
        self._save()

    def summary(self) -> dict[str, Any]:
        """What `done.json` says about the cost of the run."""
        return {
            "wall_seconds": self._earlier_seconds + time.monotonic() - self._began,
            "peak_rss_bytes": self.peak_rss_bytes,
            "starts": self.starts,
        }

    def _measure(self) -> None:
        self.peak_rss_bytes = max(self.peak_rss_bytes, tree_rss_bytes(os.getpid()))

    def _sample(self) -> None:
        saved = 0.0
        while True:
            self._measure()
            if time.monotonic() - saved > self._save_every:
                self._save()
                saved = time.monotonic()
            if self._stop.wait(self._interval):
                return

    def _save(self) -> None:
        with contextlib.suppress(OSError):  # the run itself will meet a full disk and say so
            if self._path.parent.is_dir():  # it may have been deleted meanwhile
                write_json(self._path, self.summary())


def process_age() -> float:
    """Seconds since this process was started, its imports included; 0 where /proc is missing."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def tree_rss_bytes(root: int) -> int:
    """Resident bytes of process `root` and its descendants, from /proc; 0 where there is none."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", encoding="utf-8", errors="replace") as file:
                # The name in parentheses may hold spaces; the fields after it do not.
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        parents[int(entry.name)], resident[int(entry.name)] = int(fields[1]), int(fields[21])
    children: dict[int, list[int]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    pages, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        pages += resident.get(process, 0)
        waiting += children.get(process, [])
    return pages * os.sysconf("SC_PAGE_SIZE")
