"""The process that runs episodes for a fleet: a loop over requests, a few threads, no accelerator.

Started by `fleet` as `python -m composer2_jax.envs.worker FD`, never forked, so that nothing of the
parent (its main module, its accelerator, its threads) is loaded here. It ends when the parent does.
"""

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from composer2_jax.agent.messages import Message
from composer2_jax.envs import workspace
from composer2_jax.envs.coding_env import CodingEnv, EnvConfig
from composer2_jax.envs.protocol import Reply, Request, StepResult
from composer2_jax.envs.sandbox import InfraError
from composer2_jax.errors import UserError

PR_SET_CHILD_SUBREAPER = 36


class Worker:
    """Answers the requests of one connection; requests of one episode run one after another."""

    def __init__(self, connection: Connection, threads: int, config: EnvConfig) -> None:
        self.connection, self.config = connection, config
        self.pool = ThreadPoolExecutor(threads)
        self.sending = threading.Lock()
        self.episodes: dict[int, tuple[CodingEnv, threading.Lock]] = {}

    def serve(self) -> None:
        """Until the parent closes the connection or dies."""
        while True:
            try:
                request: Request = self.connection.recv()
            except (EOFError, OSError):
                return
            self.pool.submit(self._answer, request)

    def _answer(self, request: Request) -> None:
        try:
            reply = Reply(request.number, result=self._carry_out(request))
        except (InfraError, OSError) as error:
            reply = Reply(request.number, infra_error=f"{type(error).__name__}: {error}")
        except UserError as error:
            reply = Reply(request.number, user_error=str(error))
        except BaseException:
            # Not handled: handed on whole to the parent, whose future raises it.
            reply = Reply(request.number, bug=traceback.format_exc())
        with self.sending:
            self.connection.send(reply)

    def _carry_out(self, request: Request) -> StepResult | None:
        began = time.monotonic()
        episode = request.episode
        if request.verb == "reset":
            env = CodingEnv(request.argument, self.config)
            self.episodes[episode] = (env, threading.Lock())
            messages, info = env.reset()
            return _result(episode, messages, 0.0, False, False, info, began)
        if request.verb == "close":
            self._close(episode)
            return None
        if episode not in self.episodes:
            raise KeyError(f"episode {episode} is over")
        env, lock = self.episodes[episode]
        with lock:
            answer = env.truncate() if request.verb == "truncate" else env.step(request.argument)
        messages, reward, terminated, truncated, info = answer
        if terminated or truncated:
            self._close(episode)
        return _result(episode, messages, reward, terminated, truncated, info, began)

    def _close(self, episode: int) -> None:
        env, lock = self.episodes.pop(episode, (None, None))
        if env is not None and lock is not None:
            with lock:
                env.close()


def _result(
    episode: int,
    messages: list[dict[str, Any]],
    reward: float,
    terminated: bool,
    truncated: bool,
    info: dict[str, Any],
    began: float,
) -> StepResult:
    info = {**info, "seconds": time.monotonic() - began}
    parsed = tuple(Message.from_dict(message) for message in messages)
    return StepResult(parsed, float(reward), terminated, truncated, info, episode)


def main() -> None:
    # Ctrl-C is the parent's to handle; orphans of a sandbox become ours, and we reap them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    connection = Connection(int(sys.argv[1]))
    try:
        threads, config = connection.recv()
        Worker(connection, threads, config).serve()
    except (EOFError, OSError):
        pass
    finally:
        workspace.remove_root()
        os._exit(0)


if __name__ == "__main__":
    main()
