"""The learner: trains on complete groups in schedule order and publishes weights every update."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from composer2_jax.checkpoint.manager import CheckpointManager, check_fits, restore_weights
from composer2_jax.core import trees
from composer2_jax.data.tokenizer import Tokenizer
from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.fleet import EnvFleet
from composer2_jax.envs.task import read_tasks
from composer2_jax.errors import UserError, check_at_least
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Variables, variable_shapes
from composer2_jax.optim.adamw import OptimizerConfig, make_optimizer
from composer2_jax.rl.actor import Actor
from composer2_jax.rl.batching import learning_members, pack_rows
from composer2_jax.rl.loss import make_rl_loss, mismatch_quantile
from composer2_jax.rl.rewards import RewardConfig
from composer2_jax.rl.scheduler import Schedule
from composer2_jax.rl.store import GroupStore
from composer2_jax.rl.trajectory import Group
from composer2_jax.sampler.engine import Engine, SamplerConfig
from composer2_jax.sampler.rollout import RolloutDriver
from composer2_jax.train.loop import lost_in_a_row
from composer2_jax.train.metrics import MetricsLog, read_metrics
from composer2_jax.train.state import init_state
from composer2_jax.train.step import make_streamed_step
from composer2_jax.weights.sync import InProcessWeights

MAX_INFRA_FAILURES = 0.5  # share of an update's episodes
STATISTICS = (
    "turns",
    "sampled_tokens",
    "total_tokens",
    "tests_run",
    "invalid_calls",
    "finished",
    "first_edit_right",
    "infra_retries",
)


@dataclasses.dataclass(frozen=True)
class ReinforceConfig:
    """The run. Paths are relative to the work directory.

    The loss's constant Z is groups_per_update x group_size x tokens_per_episode. `updates` 0 means
    one epoch over the tasks; every task is used at most once. `max_staleness` is how many updates
    the sampler may be behind the update that a group will be trained in. Episodes are packed into
    rows of `row_lengths`, `microbatch_tokens` at a time. `mixed_groups_only` leaves out groups that
    differ in their costs alone (all solved, or none): time is then spent on what solves tasks.
    `ratio_cap` weighs each token by its importance ratio, truncated there; None leaves it out.
    """

    tasks: str = "../tasks/rl.jsonl"
    tokenizer: str = "../data/tokenizer.model"
    init_from: str = "../sft"
    updates: int = 0
    groups_per_update: int = 16
    group_size: int = 8
    tokens_per_episode: int = 16
    max_staleness: int = 1
    mixed_groups_only: bool = False
    ratio_cap: float | None = None
    max_turn_tokens: int = 24
    row_lengths: tuple[int, ...] = (256, 384)
    microbatch_tokens: int = 3072
    env_workers: int = 2
    save_every: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 0, "updates", "max_staleness")
        positive = ("groups_per_update", "tokens_per_episode", "max_turn_tokens", "row_lengths")
        check_at_least(self, 1, *positive, "microbatch_tokens", "env_workers", "save_every")
        check_at_least(self, 2, "group_size")  # an episode is compared with its group
        if self.ratio_cap is not None and not self.ratio_cap > 0:
            raise UserError(
                f"ReinforceConfig.ratio_cap = {self.ratio_cap} must be above 0, or None"
            )


def reinforce(
    workdir: Path,
    model: ModelConfig,
    optimizer: OptimizerConfig,
    config: ReinforceConfig,
    sampler: SamplerConfig,
    env: EnvConfig,
    rewards: RewardConfig,
    seed: int = 0,
) -> dict[str, Any]:
    """Runs phase 2 and returns the last updates' means.

    A killed run goes on from its last checkpoint: groups that were finished are read from the
    store, those under way are sampled again, and every update trains on the same prompts as it
    would have without the interruption.
    """
    tasks = read_tasks(workdir / config.tasks)
    if max(config.row_lengths) < sampler.max_length:
        raise UserError("ReinforceConfig.row_lengths must reach SamplerConfig.max_length")
    if config.microbatch_tokens < max(config.row_lengths):
        raise UserError("ReinforceConfig.microbatch_tokens must hold one row of row_lengths")
    if sampler.temperature != 1.0:
        raise UserError("SamplerConfig.temperature must be 1 in RL: gradients are of that policy")
    schedule = make_schedule(len(tasks), config, seed)
    tokenizer = Tokenizer(workdir / config.tokenizer)
    model.check_vocabulary(tokenizer.vocab_size, workdir / config.tokenizer)
    engine = Engine(model, sampler)
    start = restore_weights(workdir / config.init_from)
    wanted = dict(trees.named_leaves(variable_shapes(model)))
    check_fits(dict(trees.named_leaves(start)), wanted, config.init_from)
    learner = Learner(workdir, start, model, optimizer, config, schedule)
    with (
        EnvFleet(config.env_workers, env_config=env) as fleet,
        open(workdir / "episodes.jsonl", "a", encoding="utf-8") as journal,
    ):
        driver = RolloutDriver(engine, fleet, tokenizer, max_turn_tokens=config.max_turn_tokens)
        actor = Actor(
            engine,
            driver,
            learner.weights,
            schedule,
            tasks,
            learner.missing_places(),
            codec=tokenizer,
            group_size=config.group_size,
            rewards=rewards,
            journal=journal,
        )
        actor.start()
        try:
            return learner.run(actor)
        finally:
            actor.stop()
            learner.close()


def make_schedule(num_tasks: int, config: ReinforceConfig, seed: int) -> Schedule:
    """The order of prompts; raises UserError when there are fewer than the updates need."""
    wanted = config.updates * config.groups_per_update or num_tasks
    if wanted > num_tasks:
        raise UserError(
            f"ReinforceConfig.updates={config.updates} needs {wanted} tasks, but {config.tasks} "
            f"holds {num_tasks}; every task is used once"
        )
    schedule = Schedule(
        num_tasks, config.groups_per_update, config.max_staleness, seed, config.updates
    )
    if not schedule.num_updates:
        raise UserError(f"{config.tasks} holds {num_tasks} tasks, fewer than one update needs")
    return schedule


class Learner:
    """Owns the train state, the checkpoints and the group store; lives in the main thread."""

    def __init__(
        self,
        workdir: Path,
        start: Variables,
        model: ModelConfig,
        optimizer: OptimizerConfig,
        config: ReinforceConfig,
        schedule: Schedule,
    ):
        self.config, self.schedule = config, schedule
        built = make_optimizer(optimizer, schedule.num_updates)
        self._step = make_streamed_step(model, built, make_rl_loss(model, config.ratio_cap))
        fresh = init_state(start, built)
        self._manager = CheckpointManager(workdir / "checkpoints")
        self._state = self._manager.restore_latest(fresh)
        self.update, self._lost = int(self._state.step), 0
        self._store = GroupStore(workdir / "groups.sqlite")
        self._ready = self._store.load(schedule.batch(self.update).start)
        self._log = MetricsLog(workdir / "metrics.jsonl", self.update)
        self.weights = InProcessWeights()
        self.weights.publish(self.update, self._state.variables)

    def missing_places(self) -> list[int]:
        return self.schedule.missing(self.update, self._ready)

    def run(self, actor: Actor) -> dict[str, Any]:
        """Update after update until the schedule is through."""
        total = self.schedule.num_updates
        with tqdm(total=total, initial=self.update, desc="reinforce", unit="update") as bar:
            while self.update < total:
                started = time.monotonic()
                groups = self._next_groups(actor)
                waited = time.monotonic() - started
                row = self._train(groups)
                self.weights.publish(self.update, self._state.variables)
                actor.notice()
                row |= {"seconds": time.monotonic() - started, "wait_seconds": waited}
                self._log.write(self.update, row)  # before the save: a resume drops what is too new
                self._save(final=self.update == total)
                bar.update()
                bar.set_postfix(reward=f"{row['reward_mean']:.3f}", turns=f"{row['turns']:.1f}")
        return self._closing()

    def close(self) -> None:
        self._manager.close()
        self._store.close()
        self._log.close()

    def _next_groups(self, actor: Actor) -> list[Group]:
        """Waits until every group of this update is there, and stores all that have arrived.

        The actor's error ends the wait. Raises RuntimeError when most of the update's episodes
        failed for want of a working environment: training on the rest would hide an outage.
        """
        batch = self.schedule.batch(self.update)
        while not actor.groups.empty() or any(place not in self._ready for place in batch):
            arrived = actor.groups.get()
            if isinstance(arrived, BaseException):
                raise arrived
            self._store.add(arrived)
            self._ready[arrived.place] = arrived
        groups = [self._ready.pop(place) for place in batch]
        failed = np.mean([not member.counted for group in groups for member in group.members])
        if failed > MAX_INFRA_FAILURES:
            self._store.discard(batch)  # the next start samples them again
            raise RuntimeError(
                f"update {self.update}: {failed:.0%} of the episodes failed in the environment, "
                f"not in the agent; the last error stands in the workers' output"
            )
        return groups

    def _train(self, groups: Sequence[Group]) -> dict[str, float]:
        config = self.config
        mixed = [group for group in groups if group.mixed or not config.mixed_groups_only]
        members = learning_members(mixed)
        normalizer = config.groups_per_update * config.group_size * config.tokens_per_episode
        before = self.update
        pieces = pack_rows(
            members, config.row_lengths, config.microbatch_tokens, float(normalizer), before
        )
        self._state, metrics = self._step(self._state, pieces)
        histogram = np.asarray(metrics.pop("mismatch_histogram"))
        self.update += 1
        self._lost = lost_in_a_row(self._lost, [bool(metrics["skipped"])])
        return {
            **{name: float(value) for name, value in metrics.items()},
            **mismatch(histogram, float(metrics["mismatch_mean"])),
            **group_statistics(groups, before),
            "microbatches": len(pieces),
        }

    def _save(self, final: bool) -> None:
        """Saves every few updates; groups are forgotten once a whole save has them."""
        if not final and self.update % self.config.save_every:
            return
        self._manager.save(self.update, self._state)
        durable = self._manager.latest_durable_step()
        if durable:
            self._store.forget(self.schedule.batch(durable).start)

    def _closing(self) -> dict[str, Any]:
        """What done.json says: means over the last ten updates."""
        self._manager.wait()
        rows = read_metrics(self._log.path)
        found = {
            name: [row[name] for row in rows if row[name] is not None][-10:]
            for name in ("reward_mean", "turns", "sampled_tokens", "entropy", "mismatch_p99")
        }
        means = {name: float(np.mean(values)) for name, values in found.items() if values}
        tokens = float(sum(row["tokens"] for row in rows))
        return {"updates": self.update, "tokens": tokens, **means}


def mismatch(histogram: np.ndarray, mean: float) -> dict[str, float]:
    """The mismatch of an update; not a number where every token came from older weights."""
    if not histogram.any():
        return dict.fromkeys(("mismatch_mean", "mismatch_p99", "mismatch_max"), math.nan)
    return {
        "mismatch_mean": mean,
        "mismatch_p99": mismatch_quantile(histogram, 0.99),
        "mismatch_max": mismatch_quantile(histogram, 1.0),
    }


def group_statistics(groups: Sequence[Group], update: int) -> dict[str, float]:
    """Means over the counted episodes of an update, and how stale their tokens were."""
    everyone = [member for group in groups for member in group.members]
    members = [member for member in everyone if member.counted]
    stale = [
        update - version
        for member in members
        for version, sampled in zip(member.versions, member.mask, strict=True)
        if sampled
    ]
    names = sorted({name for member in members for name in member.components})

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values)) if values else 0.0

    def component(name: str) -> float:
        return mean([member.components.get(name, 0.0) for member in members])

    def statistic(name: str) -> float:
        return mean([m.statistics[name] for m in members if name in m.statistics])

    return {
        "reward_mean": mean([member.reward for member in members]),
        **{f"reward/{name}": component(name) for name in names},
        "mixed_groups": mean([group.mixed for group in groups]),
        "infra_failures": float(len(everyone) - len(members)),
        "staleness_mean": mean(stale),
        "staleness_max": float(max(stale, default=0)),
        **{name: statistic(name) for name in STATISTICS},
    }
