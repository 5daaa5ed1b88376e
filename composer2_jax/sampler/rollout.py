"""Rollouts: many episodes at once, each a conversation between the engine and an environment.

Event-driven and single-threaded: environments answer through futures whose completion lands in one
queue; when the engine has nothing to compute, the driver sleeps on that queue. Evaluation and RL
run the same driver, so the harness is the same in both.
"""

from __future__ import annotations

import dataclasses
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from composer2_jax.agent.call_format import ParseError, parse_turn, render_turn
from composer2_jax.agent.markers import END
from composer2_jax.agent.messages import Message
from composer2_jax.agent.transcript import Transcript
from composer2_jax.envs.fleet import EnvFleet, StepResult
from composer2_jax.envs.sandbox import InfraError
from composer2_jax.envs.task import Task
from composer2_jax.sampler.engine import Engine, Sequence

INFRA_RETRIES = 2  # how often a caller runs an episode again that the machinery failed

Script = Callable[[list[Message]], Message | None]


class Codec(Protocol):
    """Text to ids and back; the tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


@dataclasses.dataclass(frozen=True)
class EpisodeRequest:
    """One episode to run. `seed` decides all its random numbers; `tag` is the caller's own."""

    task: Task
    seed: int
    tag: tuple[int, int] = (0, 0)


@dataclasses.dataclass(eq=False)
class Episode:
    """An episode, under way or done."""

    request: EpisodeRequest
    started: float
    transcript: Transcript = dataclasses.field(default_factory=Transcript)
    messages: list[Message] = dataclasses.field(default_factory=list)
    sequence: Sequence | None = None
    handle: int = -1
    turns: int = 0
    fed: int = 0  # transcript tokens that the engine already has
    reward: float = 0.0
    ending: str = ""  # finish, max_turns, context, infra
    infra_error: str = ""
    info: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


class RolloutDriver:
    """Runs episodes on an engine and a fleet of environments; one thread owns it.

    `script` may write a turn in the policy's place (a control for evaluations): it sees the
    conversation and returns a message or None. Its tokens count as the harness's.
    """

    def __init__(
        self,
        engine: Engine,
        fleet: EnvFleet,
        codec: Codec,
        *,
        max_turn_tokens: int,
        script: Script | None = None,
    ):
        self._engine, self._fleet, self._codec = engine, fleet, codec
        self._max_turn_tokens, self._script = max_turn_tokens, script
        self._stop_ids = codec.encode(END)
        self._events: queue.SimpleQueue[tuple[Episode, Future] | None] = queue.SimpleQueue()
        self._by_slot: dict[int, Episode] = {}
        self._done: list[Episode] = []

    @property
    def active(self) -> int:
        return len(self._by_slot)

    @property
    def free(self) -> int:
        """Episodes that could start now."""
        return self._engine.free_slots

    def wake(self) -> None:
        """Ends a waiting `pump`; the one method that other threads may call."""
        self._events.put(None)

    def start(self, request: EpisodeRequest) -> None:
        """Takes a slot and resets an environment for the request."""
        episode = Episode(request, time.monotonic())
        episode.sequence = self._engine.open(request.seed, self._stop_ids, self._max_turn_tokens)
        self._by_slot[episode.sequence.slot] = episode
        self._listen(episode, self._fleet.reset(request.task))

    def pump(self) -> list[Episode]:
        """Handles what environments answered, computes one engine step; returns ended episodes.

        Waits when there is nothing to compute; `wake` cuts that short.
        """
        self._handle_events(wait=not self._engine.busy)
        for sequence in self._engine.step() if self._engine.busy else []:
            self._on_turn(self._by_slot[sequence.slot])
        done, self._done = self._done, []
        return done

    def _handle_events(self, wait: bool) -> None:
        while True:
            try:
                event = self._events.get(block=wait)
            except queue.Empty:
                return
            wait = False
            if event is not None:
                self._on_answer(*event)

    def _listen(self, episode: Episode, future: Future) -> None:
        future.add_done_callback(lambda done: self._events.put((episode, done)))

    def _on_answer(self, episode: Episode, future: Future) -> None:
        """An environment was reset, or answered a turn."""
        try:
            result: StepResult = future.result()
        except InfraError as error:
            episode.infra_error, episode.ending = str(error), "infra"
            self._finish(episode)
            return
        episode.info, episode.reward = result.info, result.reward
        if episode.handle < 0:
            self._open(episode, result)
        else:
            self._continue(episode, result)

    def _open(self, episode: Episode, result: StepResult) -> None:
        episode.handle = result.episode
        episode.messages += result.messages
        episode.transcript.open_conversation(episode.messages, self._codec.encode)
        self._next_turn(episode)

    def _continue(self, episode: Episode, result: StepResult) -> None:
        over = result.terminated or result.truncated
        for message in result.messages:
            episode.messages.append(message)
            episode.transcript.append_message(message, self._codec.encode)
        if over:
            episode.ending = episode.ending or ("finish" if result.terminated else "max_turns")
            self._finish(episode)
            return
        episode.transcript.open_turn(self._codec.encode)
        self._next_turn(episode)

    def _next_turn(self, episode: Episode) -> None:
        """The script's turn if it has one, else the engine samples."""
        written = self._script(episode.messages) if self._script else None
        if written is not None:
            episode.transcript.append_harness(self._codec.encode(render_turn(written)))
            self._act(episode, written)
            return
        assert episode.sequence is not None
        prompt = episode.transcript.prompt()
        if self._engine.submit(episode.sequence, prompt[episode.fed :]):
            episode.fed = len(prompt)
        else:
            self._stop_for_context(episode)

    def _on_turn(self, episode: Episode) -> None:
        """The engine ended a turn: record its tokens, parse it, let the environment act."""
        assert episode.sequence is not None
        turn = episode.sequence.turn
        episode.transcript.append_sampled(turn.tokens, turn.logprobs, turn.versions)
        episode.fed += len(turn.tokens)
        if turn.stop == "context":
            cut = ParseError("the context is full", self._codec.decode(turn.tokens))
            episode.turns += 1
            episode.messages.append(cut.as_message())
            self._stop_for_context(episode)
            return
        if turn.stop != "stop":
            episode.transcript.end_cut_turn(self._codec.encode)
        parsed = parse_turn(self._codec.decode(turn.tokens))
        self._act(episode, parsed.as_message() if isinstance(parsed, ParseError) else parsed)

    def _act(self, episode: Episode, message: Message) -> None:
        episode.turns += 1
        episode.messages.append(message)
        self._listen(episode, self._fleet.step(episode.handle, message))

    def _stop_for_context(self, episode: Episode) -> None:
        """No room for another token: the workspace is graded as it is (overlong is not masked)."""
        episode.ending = "context"
        self._listen(episode, self._fleet.truncate(episode.handle))

    def _finish(self, episode: Episode) -> None:
        assert episode.sequence is not None
        self._engine.close(episode.sequence)
        del self._by_slot[episode.sequence.slot]
        if episode.handle >= 0:
            self._fleet.close_episode(episode.handle)
        episode.seconds = time.monotonic() - episode.started
        self._done.append(episode)
