"""Many episodes at once: worker processes that each run a few environments in threads.

Everything is a future, so a slow episode holds up nobody. When a worker dies, what it was doing
fails with an `InfraError` that names the cause, and a new worker takes its place; a worker that
keeps dying before it has done anything ends the fleet. Imported by the rollout, the evaluation and
the scripted solver; imports the standard library and gymnasium only.
"""

import itertools
import os
import socket
import subprocess
import sys
import threading
import zlib
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from composer2_jax.agent.call_format import ParseError
from composer2_jax.agent.messages import Message
from composer2_jax.envs import sandbox
from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.protocol import Reply, Request, StepResult
from composer2_jax.envs.sandbox import InfraError
from composer2_jax.envs.task import Task
from composer2_jax.errors import UserError

MAX_FRUITLESS_STARTS = 3
CLOSE_SECONDS = 10.0

__all__ = ["EnvFleet", "InfraError", "StepResult"]


class EnvFleet:
    """Runs episodes in `num_workers` processes of `threads_per_worker` threads each."""

    def __init__(
        self,
        num_workers: int = 2,
        threads_per_worker: int = 2,
        env_config: EnvConfig | None = None,
    ) -> None:
        sandbox.check()
        self.env_config = env_config or EnvConfig()
        self.threads_per_worker = threads_per_worker
        self._numbers = itertools.count()
        self._episodes: dict[int, _Slot] = {}
        self._lock = threading.Lock()
        self._slots = [
            _Slot(index, threads_per_worker, self.env_config) for index in range(num_workers)
        ]

    def reset(self, task: Task) -> "Future[StepResult]":
        """Starts an episode; the result holds its opening messages and its number (`episode`)."""
        episode = next(self._numbers)
        with self._lock:
            self._episodes[episode] = self._choose(task)
        return self._ask("reset", episode, task)

    def step(
        self, episode: int, message: Message | ParseError | dict[str, Any]
    ) -> "Future[StepResult]":
        """Runs one assistant turn. After the last one the episode is closed by itself."""
        return self._ask("step", episode, message)

    def truncate(self, episode: int) -> "Future[StepResult]":
        """Ends an episode whose context is full; it is graded as it stands."""
        return self._ask("truncate", episode)

    def close_episode(self, episode: int) -> None:
        """Gives up an episode; does nothing when it is over already."""
        with self._lock:
            slot = self._episodes.pop(episode, None)
        if slot is not None:
            slot.ask("close", episode)

    def close(self) -> None:
        """Ends all workers; what is still running fails."""
        for slot in self._slots:
            slot.close()

    def __enter__(self) -> "EnvFleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, verb: str, episode: int, argument: Any = None) -> "Future[StepResult]":
        with self._lock:
            slot = self._episodes.get(episode)
        if slot is None:
            raise KeyError(f"no episode {episode}")
        future = slot.ask(verb, episode, argument)
        future.add_done_callback(lambda done: self._forget_if_over(episode, done))
        return future

    def _choose(self, task: Task) -> "_Slot":
        """A task's home worker, whose memory of grades and tests serves the whole group, unless
        another one has clearly less to do."""
        home = self._slots[zlib.crc32(task.id.encode()) % len(self._slots)]
        idlest = min(self._slots, key=lambda slot: slot.load)
        return home if home.load <= idlest.load + 2 * self.threads_per_worker else idlest

    def _forget_if_over(self, episode: int, future: "Future[StepResult]") -> None:
        failed = future.cancelled() or future.exception() is not None
        if failed or future.result().done:
            self.close_episode(episode)


class _Slot:
    """The place of one worker process, which may be filled again."""

    def __init__(self, index: int, threads: int, config: EnvConfig) -> None:
        self.index, self.threads, self.config = index, threads, config
        self.lock = threading.RLock()
        self.numbers = itertools.count()
        self.closed = False
        self.broken = ""
        self.fruitless_starts = 0
        self.waiting: dict[int, tuple[Request, Future[Any]]] = {}
        self.alive: set[int] = set()  # episodes of the present worker
        self.death = ""  # of the worker before
        self._start()

    @property
    def load(self) -> int:
        """Episodes in this worker."""
        return len(self.alive)

    def ask(self, verb: str, episode: int, argument: Any = None) -> "Future[Any]":
        future: Future[Any] = Future()
        with self.lock:
            if self.closed or self.broken:
                future.set_exception(InfraError(self.broken or "the fleet is closed"))
                return future
            if verb == "reset":
                self.alive.add(episode)
            elif episode not in self.alive:
                future.set_exception(InfraError(f"{self.death} before {verb}"))
                return future
            if verb == "close":
                self.alive.discard(episode)
            request = Request(next(self.numbers), verb, episode, argument)
            self.waiting[request.number] = (request, future)
            with suppress(OSError):  # the reader fails the future with the worker's death
                self.connection.send(request)
        return future

    def close(self) -> None:
        with self.lock:
            self.closed = True
            process = self.process
            # Ends both directions at once: the worker and our reader both see the end.
            with suppress(OSError):  # gone already
                self.socket.shutdown(socket.SHUT_RDWR)
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.reader.join(CLOSE_SECONDS)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        package_parent = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH", "")]))
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "composer2_jax.envs.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
            )
        self.socket = ours
        self.connection = Connection(os.dup(ours.fileno()))
        with suppress(OSError):  # dead already: the reader finds out and says so
            self.connection.send((self.threads, self.config))
        self.served = 0
        self.reader = threading.Thread(
            target=self._read, args=(self.connection, self.process), daemon=True
        )
        self.reader.start()

    def _read(self, connection: Connection, process: "subprocess.Popen[bytes]") -> None:
        """Settles futures until the worker is gone, then sees to the consequences."""
        while True:
            try:
                reply: Reply = connection.recv()
            except (EOFError, OSError):
                break
            with self.lock:
                self.served += 1
                _, future = self.waiting.pop(reply.number)
            _settle(future, reply)
        connection.close()
        self.socket.close()
        self._bury(process)

    def _bury(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            code = process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        cause = f"environment worker {self.index} died (exit status {code})"
        with self.lock:
            lost, self.waiting = list(self.waiting.values()), {}
            self.alive.clear()
            self.death = cause
            if self.closed:
                cause = "the fleet was closed"
            else:
                self.fruitless_starts = 0 if self.served else self.fruitless_starts + 1
                if self.fruitless_starts >= MAX_FRUITLESS_STARTS:
                    self.broken = f"{cause} {self.fruitless_starts} times before any work"
                else:
                    try:
                        self._start()
                    except OSError as error:
                        self.broken = f"{cause}, and another cannot start: {error}"
        for request, future in lost:
            _fail(future, InfraError(f"{cause} during {request.verb}"))


def _settle(future: "Future[Any]", reply: Reply) -> None:
    if reply.infra_error:
        _fail(future, InfraError(reply.infra_error))
    elif reply.user_error:
        _fail(future, UserError(reply.user_error))
    elif reply.bug:
        _fail(future, RuntimeError(f"an environment failed:\n{reply.bug}"))
    elif future.set_running_or_notify_cancel():
        future.set_result(reply.result)


def _fail(future: "Future[Any]", error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
