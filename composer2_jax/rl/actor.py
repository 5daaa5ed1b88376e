"""The actor thread: samples groups with the newest weights it has, ahead of the learner.

It runs beside the learner in one process; the two exchange weights (`InProcessWeights`) one way and
finished groups (a queue) the other. An error here ends the run: it travels through the same queue.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import TextIO

from composer2_jax.envs.task import Task
from composer2_jax.rl.rewards import RewardConfig, components
from composer2_jax.rl.scheduler import Schedule
from composer2_jax.rl.trajectory import Group, Trajectory
from composer2_jax.sampler.engine import Engine
from composer2_jax.sampler.records import effort_of, episode_record, statistics_of
from composer2_jax.sampler.rollout import (
    INFRA_RETRIES,
    Codec,
    Episode,
    EpisodeRequest,
    RolloutDriver,
)
from composer2_jax.weights.sync import InProcessWeights


class Actor(threading.Thread):
    """Samples the groups of `places`, oldest first, as far as the schedule admits them.

    `journal` gets one episode of every group as a JSON line, for people to read.
    """

    def __init__(
        self,
        engine: Engine,
        driver: RolloutDriver,
        weights: InProcessWeights,
        schedule: Schedule,
        tasks: Sequence[Task],
        places: Sequence[int],
        *,
        codec: Codec,
        group_size: int,
        rewards: RewardConfig,
        journal: TextIO | None = None,
    ):
        super().__init__(name="actor", daemon=True)
        self.groups: queue.SimpleQueue[Group | BaseException] = queue.SimpleQueue()
        self._engine, self._driver, self._weights = engine, driver, weights
        self._schedule, self._tasks, self._order = schedule, tasks, schedule.order()
        self._codec, self._group_size, self._rewards = codec, group_size, rewards
        # A stack with the oldest place on top, so that a retry goes first again.
        self._waiting = [
            (place, member) for place in reversed(places) for member in reversed(range(group_size))
        ]
        self._members: dict[int, dict[int, Trajectory]] = defaultdict(dict)
        self._retries: dict[tuple[int, int], int] = defaultdict(int)
        self._journal = journal
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._take_weights()
                self._admit()
                for episode in self._driver.pump():
                    self._collect(episode)
        except BaseException as error:  # handed to the learner, which raises it
            self.groups.put(error)

    def notice(self) -> None:
        """Tells the thread that new weights are there."""
        self._driver.wake()

    def stop(self) -> None:
        """Ends the thread; episodes under way are dropped and will be sampled again."""
        self._stopping.set()
        self._driver.wake()
        self.join()

    def _take_weights(self) -> None:
        newest = self._weights.newer_than(self._engine.version)
        if newest is not None:
            self._engine.set_weights(newest.variables, newest.version)

    def _admit(self) -> None:
        limit = self._schedule.admissible(self._engine.version)
        while self._waiting and self._waiting[-1][0] < limit and self._driver.free:
            place, member = self._waiting.pop()
            self._driver.start(
                EpisodeRequest(
                    task=self._tasks[self._order[place]],
                    seed=episode_seed(self._schedule.seed, place, member),
                    tag=(place, member),
                )
            )

    def _collect(self, episode: Episode) -> None:
        """Books an ended episode; an infrastructure failure is tried again, then left out."""
        place, member = episode.request.tag
        if episode.infra_error and self._retries[place, member] < INFRA_RETRIES:
            self._retries[place, member] += 1
            self._waiting.append((place, member))
            return
        if member == 0 and self._journal is not None:
            step = place // self._schedule.groups_per_update + 1
            line = json.dumps({"step": step, **episode_record(episode)})
            self._journal.write(line + "\n")
            self._journal.flush()
        self._members[place][member] = self._trajectory(episode)
        if len(self._members[place]) == self._group_size:
            members = self._members.pop(place)
            ordered = tuple(members[m] for m in range(self._group_size))
            self.groups.put(Group(place, episode.request.task.id, ordered))

    def _trajectory(self, episode: Episode) -> Trajectory:
        statistics = statistics_of(episode)
        parts = components(
            episode.reward,
            effort_of(episode, self._codec),
            int(statistics["invalid_calls"]),
            self._rewards,
        )
        statistics["infra_retries"] = self._retries[episode.request.tag]
        record = episode.transcript
        # What the harness said after the last sampled token teaches nothing, and need not fit a
        # row: the engine bounds what it samples, not what an environment answers.
        size = max((place for place, on in enumerate(record.mask, 1) if on), default=0)
        return Trajectory(
            tokens=tuple(record.tokens[:size]),
            mask=tuple(record.mask[:size]),
            logprobs=tuple(record.logprobs[:size]),
            versions=tuple(record.versions[:size]),
            reward=sum(parts.values()),
            components=parts,
            counted=not episode.infra_error,
            statistics=statistics,
        )


def episode_seed(seed: int, place: int, member: int) -> int:
    """A 31-bit seed of its own for every episode of a run."""
    return (seed * 1_000_003 + place * 4_099 + member * 31 + 17) % (2**31 - 1)
