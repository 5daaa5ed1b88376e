"""Watches one sandboxed process from outside: bounded output, time, memory and disk, a sure end.

The command is over when bubblewrap's own process ends; a child that still holds the output pipe
does not keep us waiting. The pid namespace's first process is then killed, which kills all of them,
and we return only when it is gone. Imported by `sandbox` only; imports the standard library only.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Protocol

CHUNK = 1 << 16
TICK = 0.1  # seconds between looks at memory and disk
GRACE = 10.0  # seconds for the kernel to end what we killed
CUT = "\n[... {} bytes left out ...]\n"


class InfraError(RuntimeError):
    """The machinery failed, not the agent: to be tried again, and never a reward of 0."""


class Bounds(Protocol):
    """The part of `sandbox.Limits` that is watched from outside."""

    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def directory_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def kept_bytes(self) -> int: ...


@dataclass
class Outcome:
    exit_code: int
    output: str
    stopped: str
    seconds: float


@dataclass
class HeadTail:
    """The first and the last bytes of a stream, at most `kept` of each."""

    kept: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.kept - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.kept:
            del self.tail[: -self.kept]

    def text(self) -> str:
        """Valid text; an explicit mark stands where bytes were left out."""
        tail = self.tail[-self.kept :]
        left_out = self.total - len(self.head) - len(tail)
        if not left_out:
            return bytes(self.head + tail).decode(errors="replace")
        head = bytes(self.head).decode(errors="replace").rstrip("\ufffd")
        # The cut may fall inside a character: its continuation bytes belong to nothing.
        start = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        return head + CUT.format(left_out) + bytes(tail[start:]).decode(errors="replace")


def supervise(command: Sequence[str], directory: str, bounds: Bounds, stdin: bytes) -> Outcome:
    """Runs a bubblewrap command line to its end. `command` gets a status pipe as an option."""
    began = time.monotonic()
    with ExitStack() as stack:
        read_status, write_status = os.pipe()
        stack.callback(os.close, read_status)
        bwrap = next(i for i, part in enumerate(command) if os.path.basename(part) == "bwrap")
        argv = [*command[: bwrap + 1], "--json-status-fd", str(write_status), *command[bwrap + 1 :]]
        try:
            process = subprocess.Popen(
                argv,
                stdin=_input(stdin, stack),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},  # bubblewrap's own environment can be read inside through /proc
                cwd="/",
                pass_fds=(write_status,),
                start_new_session=True,
            )
        except OSError as error:
            raise InfraError(f"cannot start the sandbox: {error}") from error
        finally:
            os.close(write_status)
        watch = _Watch(process, read_status, directory, bounds, stack, began)
        try:
            watch.until_over()
        finally:
            watch.end()
    return watch.outcome(time.monotonic() - began)


def _input(data: bytes, stack: ExitStack) -> int:
    if not data:
        return subprocess.DEVNULL
    handle = os.memfd_create("stdin")
    stack.callback(os.close, handle)
    write_all(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def write_all(handle: int, data: bytes) -> None:
    """Writes all of `data`: a single write may stop short."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


class _Watch:
    """The state of one running sandbox."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        status: int,
        directory: str,
        bounds: Bounds,
        stack: ExitStack,
        began: float,
    ) -> None:
        assert process.stdout is not None
        self.process, self.status, self.stack = process, status, stack
        self.directory, self.bounds, self.began = directory, bounds, began
        self.pipe = stack.enter_context(process.stdout).fileno()
        os.set_blocking(self.pipe, False)
        os.set_blocking(status, False)
        self.outer = os.pidfd_open(process.pid)
        stack.callback(os.close, self.outer)
        self.status_text = b""
        self.init_pid = 0  # the first process of the pid namespace, by its host pid
        self.init: int | None = None
        self.output = HeadTail(bounds.kept_bytes)
        self.stopped = ""

    def until_over(self) -> None:
        """Reads until the command ends or a bound is passed."""
        poll = select.poll()
        for handle in (self.outer, self.pipe, self.status):
            poll.register(handle, select.POLLIN)
        deadline = self.began + self.bounds.seconds
        next_look = self.began + TICK
        while not self.stopped:
            now = time.monotonic()
            if now >= deadline:
                self.stopped = "time"
                return
            if now >= next_look:
                next_look = now + TICK
                self.stopped = self._look()
            wait = max(0.0, min(deadline, next_look) - now)
            ready = {handle for handle, _ in poll.poll(_milliseconds(wait))}
            if self.status in ready and not self._read_status():
                poll.unregister(self.status)
            if self.outer in ready:
                return
            if self.pipe in ready and not self._read_output():
                poll.unregister(self.pipe)

    def end(self) -> None:
        """Kills whatever is left and returns when it is gone."""
        deadline = time.monotonic() + GRACE
        # Killing bubblewrap before its child is known could leave that child behind.
        while self.init is None and not _ended(self.outer, 0.0):
            select.select([self.status, self.outer], [], [], 0.5)
            if not self._read_status() or time.monotonic() > deadline:
                break
        if self.init is not None:
            _kill(self.init)
        elif not _ended(self.outer, 0.0):
            self.process.kill()
        gone = self.init is None or _ended(self.init, deadline - time.monotonic())
        if not _ended(self.outer, max(0.0, deadline - time.monotonic())):
            self.process.kill()
        self.process.wait()
        # Where we are the subreaper (a fleet worker), the namespace's first process is now ours.
        if self.init_pid:
            with suppress(ChildProcessError):
                os.waitpid(self.init_pid, os.WNOHANG)
        if not gone:
            raise InfraError("a sandbox did not end after it was killed")
        while self.output.total <= self.bounds.output_bytes and self._read_output():
            pass
        self._read_status()

    def outcome(self, seconds: float) -> Outcome:
        ran = b'"exit-code"' in self.status_text
        if not ran and not self.stopped:
            said = self.output.text().strip() or f"exit status {self.process.returncode}"
            raise InfraError(f"the sandbox failed: {said[:300]}")
        return Outcome(self.process.returncode, self.output.text(), self.stopped, seconds)

    def _read_output(self) -> bool:
        """Reads one chunk; False when there is no more to read now."""
        try:
            data = os.read(self.pipe, CHUNK)
        except BlockingIOError:
            return False
        self.output.add(data)
        if self.output.total > self.bounds.output_bytes and not self.stopped:
            self.stopped = "output"
        return bool(data)

    def _read_status(self) -> bool:
        """Reads bubblewrap's status lines; False at their end."""
        try:
            data = os.read(self.status, CHUNK)
        except BlockingIOError:
            return True
        self.status_text += data
        if self.init is None and b"\n" in self.status_text:
            self.init_pid = json.loads(self.status_text.partition(b"\n")[0])["child-pid"]
            with suppress(ProcessLookupError):
                self.init = os.pidfd_open(self.init_pid)
                self.stack.callback(os.close, self.init)
        return bool(data)

    def _look(self) -> str:
        """The bound on memory, work or disk that is passed now, if any."""
        memory, cpu_seconds = _usage(self.init_pid) if self.init_pid else (0, 0.0)
        if memory > self.bounds.memory_bytes:
            return "memory"
        if cpu_seconds > (self.bounds.cpu_seconds or self.bounds.seconds):
            return "cpu"
        if directory_bytes(self.directory, self.bounds.directory_bytes) is None:
            return "disk"
        return ""


def _milliseconds(seconds: float) -> int:
    """Milliseconds for poll, never rounded down to a busy loop."""
    return int(seconds * 1000) + 1


def _kill(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _ended(pidfd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, _milliseconds(seconds) if seconds > 0 else 0)))


def _usage(pid: int) -> tuple[int, float]:
    """Resident bytes and processor seconds of a process and all below it.

    Daemons hang below the namespace's first process; the time of children that have ended is part
    of their parent's.
    """
    total, ticks, waiting = 0, 0, [pid]
    while waiting:
        here = waiting.pop()
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{here}/statm", encoding="ascii") as stream:
                total += int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{here}/stat", encoding="utf-8", errors="replace") as stream:
                ticks += sum(
                    int(field) for field in stream.read().rpartition(")")[2].split()[11:15]
                )
            for thread in os.listdir(f"/proc/{here}/task"):
                with open(f"/proc/{here}/task/{thread}/children", encoding="ascii") as stream:
                    waiting += [int(child) for child in stream.read().split()]
    return total, ticks / os.sysconf("SC_CLK_TCK")


def directory_bytes(directory: str, limit: int) -> int | None:
    """Bytes on disk below a directory, or None as soon as they pass `limit`."""
    total, waiting = 0, [directory]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                if total > limit:
                    return None
    return total
