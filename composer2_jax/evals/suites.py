"""Runs a suite of coding tasks: every task several times, in the harness that RL trains in."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from composer2_jax.checkpoint.manager import restore_weights
from composer2_jax.data.tokenizer import Tokenizer
from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.fleet import EnvFleet
from composer2_jax.envs.task import read_tasks
from composer2_jax.errors import UserError, check_at_least
from composer2_jax.evals.summary import summarize
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import variable_shapes
from composer2_jax.sampler.engine import Engine, SamplerConfig
from composer2_jax.sampler.records import episode_record
from composer2_jax.sampler.rollout import INFRA_RETRIES, EpisodeRequest, RolloutDriver, Script


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """What is evaluated. Paths are relative to the work directory."""

    tasks: str = "../tasks/heldout.jsonl"
    tokenizer: str = "../data/tokenizer.model"
    weights: str = "../sft"
    samples: int = 4
    max_tasks: int = 0  # 0: all
    env_workers: int = 2
    max_turn_tokens: int = 24

    def __post_init__(self) -> None:
        check_at_least(self, 1, "samples", "env_workers", "max_turn_tokens")
        check_at_least(self, 0, "max_tasks")


def evaluate(
    workdir: Path,
    model: ModelConfig,
    config: EvalConfig,
    sampler: SamplerConfig,
    env: EnvConfig,
    script: Script | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluates a checkpoint and writes episodes.jsonl; a second call goes on where it stopped.

    Returns what `summarize` says of the episodes.
    """
    tasks = read_tasks(workdir / config.tasks)[: config.max_tasks or None]
    if not tasks:
        raise UserError(f"{config.tasks} holds no task")
    path = workdir / "episodes.jsonl"
    records = _finished(path)
    have = {(record["task_id"], record["sample"]) for record in records}
    requests = [
        EpisodeRequest(task, seed=_seed(seed, index, sample), tag=(index, sample))
        for index, task in enumerate(tasks)
        for sample in range(config.samples)
        if (task.id, sample) not in have
    ]
    if requests:
        tokenizer = Tokenizer(workdir / config.tokenizer)
        model.check_vocabulary(tokenizer.vocab_size, workdir / config.tokenizer)
        engine = Engine(model, sampler)
        target = variable_shapes(model)
        engine.set_weights(restore_weights(workdir / config.weights, target=target), 0)
        env = dataclasses.replace(env, diff=True)
        with EnvFleet(config.env_workers, env_config=env) as fleet:
            driver = RolloutDriver(
                engine, fleet, tokenizer, max_turn_tokens=config.max_turn_tokens, script=script
            )
            records += _run(driver, requests, path)
    return summarize(sorted(records, key=lambda record: (record["task_id"], record["sample"])))


def _run(driver: RolloutDriver, requests: list[EpisodeRequest], path: Path) -> list[dict[str, Any]]:
    """Runs all requests, appending each record as its episode ends.

    An episode that the machinery failed is run again; after a few tries the evaluation ends with
    the cause, since a result over fewer episodes would not be comparable.
    """
    records = []
    failures: Counter[tuple[int, int]] = Counter()
    waiting = list(reversed(requests))
    with (
        open(path, "a", encoding="utf-8") as file,
        tqdm(total=len(requests), desc="evaluate", unit="episode") as bar,
    ):
        while waiting or driver.active:
            while waiting and driver.free:
                driver.start(waiting.pop())
            for episode in driver.pump():
                if episode.infra_error:
                    failures[episode.request.tag] += 1
                    if failures[episode.request.tag] > INFRA_RETRIES:
                        raise RuntimeError(f"{episode.request.task.id}: {episode.infra_error}")
                    waiting.append(episode.request)
                    continue
                records.append(episode_record(episode))
                file.write(json.dumps(records[-1]) + "\n")
                file.flush()
                passed = np.mean([record["reward"] for record in records])
                bar.set_postfix(passed=f"{passed:.3f}", refresh=False)
                bar.update()
    return records


def _finished(path: Path) -> list[dict[str, Any]]:
    """Records of an earlier, interrupted call; a cut last line is dropped from the file."""
    if not path.exists():
        return []
    whole, newline, _ = path.read_bytes().rpartition(b"\n")
    os.truncate(path, len(whole + newline))
    return [json.loads(line) for line in whole.splitlines()]


def _seed(seed: int, task: int, sample: int) -> int:
    return (seed * 7_919 + task * 104_729 + sample * 1_299_709 + 5) % (2**31 - 1)
