"""An episode's own copy of a task's repository, and safe access to it from the host.

The agent's commands may leave anything in a workspace: links to host files, links swapped in at any
moment, pipes. Host code therefore opens files only through `openat2` with RESOLVE_BENEATH, where
the kernel itself refuses every way out. Imported by the tools and the environment; imports the
standard library only.
"""

import atexit
import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from composer2_jax.envs import git_objects, sandbox
from composer2_jax.envs.supervise import write_all
from composer2_jax.envs.task import Task
from composer2_jax.errors import UserError

OPENAT2 = 437  # the same system call number on every architecture
RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH = 0x02, 0x08
MAX_FILE_BYTES = 1 << 20
ROOT_PREFIX = "composer2-"
ROOMY = 2 << 30  # free bytes

_libc = ctypes.CDLL(None, use_errno=True)


class PathError(ValueError):
    """A path that names no usable file of the workspace, in a few words for the model."""


@dataclass(frozen=True)
class Template:
    """A repository ready to be written out: every directory and every file, `.git` included."""

    directories: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


@functools.lru_cache(maxsize=256)
def _template(files: tuple[tuple[str, str], ...]) -> Template:
    contents = {path: text.encode("utf-8", "surrogateescape") for path, text in files}
    everything = dict(contents)
    for path, data in git_objects.one_commit(contents).items():
        everything[f".git/{path}"] = data
    return _as_template(everything)


def _as_template(files: Mapping[str, bytes]) -> Template:
    directories = {
        str(parent) for path in files for parent in Path(path).parents if str(parent) != "."
    }
    return Template(tuple(sorted(directories)), tuple(files.items()))


def template(task: Task) -> Template:
    """The task's repository; built once for a task and process."""
    return _template(tuple(sorted(task.files.items())))


class Workspace:
    """A directory of the sandbox's user. Close it (or use `with`) to remove it."""

    def __init__(self, source: Template, owned: bool = True) -> None:
        self.path = tempfile.mkdtemp(dir=root())
        self._directory = -1
        try:
            self._directory = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.chmod(self.path, 0o755)
            self._write(source, sandbox.user() if owned and os.geteuid() == 0 else -1)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_task(cls, task: Task) -> "Workspace":
        return cls(template(task))

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> "Workspace":
        """A tree without `.git` that the sandbox can read and not own, for grading."""
        return cls(_as_template(files), owned=False)

    def _write(self, source: Template, owner: int) -> None:
        """Writes out a template. Nothing else runs in this directory yet, so plain paths do."""
        for directory in source.directories:
            os.mkdir(f"{self.path}/{directory}", 0o755)
        for name, data in source.files:
            handle = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                write_all(handle, data)
                if owner >= 0:
                    os.fchown(handle, owner, owner)
            finally:
                os.close(handle)
        if owner >= 0:
            for directory in ("", *source.directories):
                os.chown(f"{self.path}/{directory}", owner, owner)

    def open(self, path: str, flags: int) -> int:
        """A file descriptor of `path`, which must stay beneath the workspace; never creates."""
        _check_name(path)
        how = (ctypes.c_uint64 * 3)(
            flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY,
            0,
            RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
        )
        name = os.fsencode(path)
        for _ in range(3):  # EAGAIN: something moved while the kernel looked
            handle = _libc.syscall(OPENAT2, self._directory, name, how, ctypes.sizeof(how))
            if handle >= 0:
                return int(handle)
            number = ctypes.get_errno()
            if number != errno.EAGAIN:
                break
        if number == errno.ENOSYS:
            raise UserError("file tools need openat2: use Linux 5.6 or newer")
        raise PathError(_REASONS.get(number, os.strerror(number).lower()))

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """The bytes of a regular file of at most `limit` bytes."""
        handle = self.open(path, os.O_RDONLY)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise PathError("not a file")
            if status.st_size > limit:
                raise PathError(f"file of {status.st_size} bytes")
            return _read_all(handle, status.st_size)
        finally:
            os.close(handle)

    def write(self, path: str, data: bytes) -> None:
        """Replaces the bytes of an existing regular file, in place: owner, mode and links stay."""
        handle = self.open(path, os.O_WRONLY)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise PathError("not a file")
            os.ftruncate(handle, 0)
            write_all(handle, data)
        finally:
            os.close(handle)

    def names(self, path: str = "") -> list[str]:
        """Names in a directory, sorted, a slash after those of directories; `.git` is not shown."""
        return [name + ("/" if kind == "directory" else "") for name, kind in self._scan(path)]

    def _scan(self, path: str) -> list[tuple[str, str]]:
        """(name, "directory" | "file" | "other") of a directory's entries, sorted."""
        handle = self.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(handle) as entries:
                return sorted((e.name, _kind(e)) for e in entries if e.name != ".git")
        finally:
            os.close(handle)

    def walk(self) -> Iterator[tuple[str, str]]:
        """(path, kind) of everything outside `.git`; links are named and not followed."""
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            prefix = f"{directory}/" if directory else ""
            with suppress(PathError):
                for name, kind in self._scan(directory):
                    if kind == "directory":
                        waiting.append(prefix + name)
                    yield prefix + name, kind

    def files(self, limit: int = 4 * MAX_FILE_BYTES) -> dict[str, bytes]:
        """The regular files outside `.git`; those that would pass `limit` bytes are left out."""
        found: dict[str, bytes] = {}
        total = 0
        for path, kind in self.walk():
            if kind != "file":
                continue
            with suppress(PathError):
                data = self.read(path)
                if total + len(data) <= limit:
                    found[path] = data
                    total += len(data)
        return found

    def digest(self) -> str:
        """A digest of everything outside `.git`: names, kinds, modes, contents of any size, and
        where links point."""
        return digest(
            {f"{kind} {path}": self._fingerprint(path, kind) for path, kind in self.walk()}
        )

    def _fingerprint(self, path: str, kind: str) -> bytes:
        """What tells this entry from another of its name and kind."""
        try:
            if kind == "other":
                return self._link_target(path)
            handle = self.open(path, os.O_RDONLY)
        except PathError as error:
            return f"! {error}".encode()
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                return b"%o" % mode
            with open(handle, "rb", closefd=False) as stream:
                return b"%o %s" % (mode, hashlib.file_digest(stream, "blake2b").digest())
        finally:
            os.close(handle)

    def _link_target(self, path: str) -> bytes:
        """Where a link points; of a pipe or a socket, that it is no link."""
        directory, _, name = path.rpartition("/")
        handle = self.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.fsencode(os.readlink(name, dir_fd=handle))
        except OSError:
            return b"no link"
        finally:
            os.close(handle)

    def close(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
        remove(self.path)

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_REASONS = {
    errno.EXDEV: "path leaves the repository",
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EISDIR: "is a directory",
    errno.ENXIO: "not a file",
    errno.ELOOP: "too many links",
    errno.ENAMETOOLONG: "name too long",
    errno.EACCES: "not readable",
}


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _check_name(path: str) -> None:
    if "\0" in path:
        raise PathError("NUL in path")
    if path.startswith("/") or ".." in path.split("/"):
        raise PathError("path leaves the repository")


def _read_all(handle: int, size: int) -> bytes:
    data = os.read(handle, size + 1)
    while len(data) < size and (more := os.read(handle, size - len(data))):
        data += more
    return data[:size]


def digest(files: Mapping[str, bytes]) -> str:
    """A digest of a tree: names and contents, each with its length."""
    state = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        name = path.encode("utf-8", "surrogateescape")
        state.update(b"%d %d " % (len(name), len(files[path])) + name + files[path])
    return state.hexdigest()


def remove(path: str) -> None:
    """Removes a tree in which nothing runs any more, also where a command took away our right to
    look into a directory."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    os.chmod(path, 0o700)
    for directory, names, _ in os.walk(path):
        for name in (f"{directory}/{name}" for name in names):
            if not os.path.islink(name):
                os.chmod(name, 0o700)
    shutil.rmtree(path, ignore_errors=True)


# The root of this process's workspaces. A lock on it says that its owner lives, so that the next
# process can remove what a killed one left behind.
_roots: dict[int, tuple[str, int]] = {}


def _free_bytes(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def root() -> str:
    """The directory of this process's workspaces, in memory where /dev/shm has room for many.

    Containers often have a small one, where a single greedy episode would fail all the others.
    """
    if os.getpid() not in _roots:
        _roots.clear()
        shared = "/dev/shm"
        roomy = os.access(shared, os.W_OK | os.X_OK) and _free_bytes(shared) >= ROOMY
        base = shared if roomy else tempfile.gettempdir()
        _sweep(base)
        path = tempfile.mkdtemp(prefix=ROOT_PREFIX, dir=base)
        os.chmod(path, 0o711)  # the sandbox's user passes through and cannot list
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _roots[os.getpid()] = (path, lock)
        atexit.register(remove_root)
    return _roots[os.getpid()][0]


def remove_root() -> None:
    """Removes this process's workspaces, all of them."""
    path, lock = _roots.pop(os.getpid(), ("", -1))
    if path:
        remove(path)
        os.close(lock)


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Whether the directory could be locked, that is, whether its owner is dead."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def _sweep(base: str) -> None:
    with os.scandir(base) as entries:
        stale = [entry.path for entry in entries if entry.name.startswith(ROOT_PREFIX)]
    for path in stale:
        with suppress(OSError):
            if os.stat(path).st_uid == os.geteuid():
                with _locked(path) as dead:
                    if dead:
                        remove(path)
