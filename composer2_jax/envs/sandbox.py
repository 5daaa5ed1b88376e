"""Runs one command in a fresh bubblewrap sandbox: no network, no host files, all of it bounded.

The sandbox sees a read-only system, an empty environment, one directory and small private tmpfs.
When we are root it runs as an unprivileged uid (a mapped uid would keep root's rights on the host);
otherwise as the user. Ending the pid namespace ends every process that the command left behind.
Where the sandbox cannot be had, `check` says what to type; there is no weaker fallback.
Imported by the tools and the grading; imports the standard library only.
"""

import functools
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from composer2_jax.envs.supervise import InfraError, Outcome, supervise
from composer2_jax.errors import UserError

SANDBOX_UID = 58123
DIRECTORY = "/repo"  # where the workspace stands inside the sandbox
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # the same tree gives the same output
    "GIT_CONFIG_NOSYSTEM": "1",
}
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
MINIMUM_BWRAP = (0, 8)  # the first with --disable-userns

__all__ = ["CommandResult", "InfraError", "Limits", "check", "python", "run", "user"]


@dataclass(frozen=True)
class Limits:
    """What a command may use. Memory is bounded for each process and for all of them together.

    `cpu_seconds` bounds the work of all processes (0 = `seconds`): unlike the time on the wall, it
    stops an endless loop early without stopping a good command on a busy machine.
    """

    seconds: float = 5.0
    cpu_seconds: float = 0.0
    processes: int = 64
    memory_bytes: int = 1 << 30
    file_bytes: int = 64 << 20
    open_files: int = 256
    tmp_bytes: int = 64 << 20
    directory_bytes: int = 256 << 20
    output_bytes: int = 16 << 20  # a command that writes more is stopped
    kept_bytes: int = 32 << 10  # of the output's head, and of its tail


@dataclass(frozen=True)
class CommandResult:
    """`stopped` names the limit that ended the command, if one did: "time" (on the wall), "cpu",
    "output", "memory" or "disk"."""

    exit_code: int
    output: str
    stopped: str = ""
    seconds: float = 0.0


def user() -> int:
    """The host uid that sandboxed commands run as, and that owns workspaces."""
    return SANDBOX_UID if os.geteuid() == 0 else os.geteuid()


@functools.cache
def python() -> str:
    """The Python of the sandbox: the system's own, since a home directory is not visible inside."""
    for path in PYTHONS:
        if os.access(path, os.X_OK) and os.path.realpath(path).startswith("/usr/"):
            return path
    raise UserError("no python3 under /usr for the sandbox: apt-get install python3")


def run(
    argv: Sequence[str],
    directory: str,
    limits: Limits | None = None,
    stdin: bytes = b"",
    writable: bool = True,
) -> CommandResult:
    """Runs `argv` with `directory` as its working directory and returns when nothing of it lives.

    Raises `InfraError` when the sandbox itself fails; the command has then not been started, so
    trying again is safe.
    """
    limits = limits or Limits()
    bind = "--bind" if writable else "--ro-bind"
    command = [
        *_outer_arguments(),
        *("--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"),
        *(bind, directory, DIRECTORY, "--remount-ro", "/", "--chdir", DIRECTORY),
        *_limit_arguments(limits),
        *argv,
    ]
    outcome = supervise(command, directory, limits, stdin)
    return CommandResult(_exit_code(outcome), outcome.output, outcome.stopped, outcome.seconds)


def _exit_code(outcome: Outcome) -> int:
    if outcome.stopped:
        return 124 if outcome.stopped in ("time", "cpu") else 137
    return outcome.exit_code


@functools.cache
def check() -> None:
    """Raises a `UserError` that names the remedy where commands cannot be sandboxed."""
    for program, package in (
        ("bwrap", "bubblewrap"),
        ("prlimit", "util-linux"),
        ("setpriv", "util-linux"),
    ):
        if shutil.which(program) is None:
            raise UserError(f"the sandbox needs {program}: apt-get install {package}")
    shown = subprocess.run([_program("bwrap"), "--version"], capture_output=True, text=True)
    version = tuple(int(part) for part in re.findall(r"\d+", shown.stdout)[:2])
    if version < MINIMUM_BWRAP:
        raise UserError(
            f"bubblewrap {shown.stdout.split()[-1]} is too old, 0.8 is needed: "
            "apt-get install bubblewrap from a newer release"
        )
    try:
        result = run(
            [python(), "-c", "print(7)"],
            "/usr/bin",
            replace(Limits(), seconds=30.0),
            writable=False,
        )
    except InfraError as error:
        raise UserError(_remedy(str(error))) from error
    if result.output != "7\n":
        raise UserError(f"python3 does not run in the sandbox: {result.output.strip()[:200]}")


def _remedy(problem: str) -> str:
    """What to type when bubblewrap is there but the kernel forbids it."""
    for name, forbidding, allowing in (
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "15000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        try:
            with open(f"/proc/sys/{name}", encoding="ascii") as stream:
                value = stream.read().strip()
        except OSError:
            continue
        if value == forbidding:
            key = name.replace("/", ".")
            return f"the kernel forbids the sandbox ({problem}): sysctl -w {key}={allowing}"
    return (
        f"the sandbox cannot start ({problem}): allow user namespaces; in a container, start it "
        "with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    )


@functools.cache
def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise UserError(f"the sandbox needs {name}, which is not installed")
    return path


@functools.cache
def _outer_arguments() -> tuple[str, ...]:
    """Everything up to the private tmpfs: the same for every command of this process."""
    arguments: list[str] = []
    if os.geteuid() == 0:
        arguments += [
            *(_program("setpriv"), f"--reuid={SANDBOX_UID}", f"--regid={SANDBOX_UID}"),
            *("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        ]
    arguments += [
        *(_program("bwrap"), "--unshare-all", "--unshare-user", "--disable-userns"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--hostname", "sandbox", "--ro-bind", "/usr", "/usr", "--dir", "/etc"),
    ]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = f"/{name}"
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        arguments += ["--ro-bind-try", path, path]
    # Without a size the tmpfs of /dev could hold half of the host's memory.
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(16 << 20)]
    arguments += ["--tmpfs", "/dev/shm"]
    for path in _our_own_under_usr():
        arguments += ["--tmpfs", path]
    return tuple(arguments)


def _our_own_under_usr() -> list[str]:
    """Where this project lies when it lies under the shared /usr: it holds the tasks' answers."""
    package = Path(__file__).resolve().parents[1]
    clone = package.parent
    found = [clone if (clone / "gin_configs").is_dir() else package]
    found.append(Path(sys.prefix) / "share" / "composer2_jax")
    return [str(path) for path in found if path.is_dir() and path.is_relative_to("/usr")]


def _limit_arguments(limits: Limits) -> tuple[str, ...]:
    """Resource limits, set inside: the process count is then this sandbox's own."""
    return (
        _program("prlimit"),
        f"--nproc={limits.processes}",
        f"--as={limits.memory_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        f"--cpu={math.ceil(limits.cpu_seconds or limits.seconds)}",
        "--core=0",
        "--",
    )
