"""The pretraining loop, phase 1 of the report: bulk, draft head, long context, SFT are one verb.

A phase starts from other runs' weights, reads batches that depend on (seed, position) alone, and
saves state and data position together, so that a killed run ends with the weights of an
uninterrupted one, bit for bit.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from composer2_jax.checkpoint.manager import CheckpointManager, restore_weights
from composer2_jax.core import trees
from composer2_jax.data.pipeline import eval_batches, read_mixture, train_iterator
from composer2_jax.errors import UserError
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Variables, init_variables
from composer2_jax.optim.adamw import OptimizerConfig, make_optimizer
from composer2_jax.train.losses import LossConfig, make_loss
from composer2_jax.train.measure import Measurement, measure
from composer2_jax.train.metrics import MetricsLog, read_metrics
from composer2_jax.train.state import TrainState, init_state
from composer2_jax.train.step import TrainStep, make_train_step

TRAINED_ON = ("tokens", "segment_ids", "positions", "loss_mask")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What is read, in rows of `length` tokens. Paths are relative to the work directory.

    `heldout` names the token file whose held-out split is measured before and after; "" for none.
    """

    directory: str = "../data"
    mixture: str = "pretrain"
    rows: int = 8
    length: int = 256
    heldout: str = ""
    heldout_batches: int = 16


@dataclasses.dataclass(frozen=True)
class Source:
    """Weights of another run: its checkpoint of `step` (0: the newest), parameters under `prefix`."""

    run: str
    step: int = 0
    prefix: str = ""


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """One phase. Without `init_from` it starts from fresh weights; later sources win.

    `keep_steps` are checkpoints that stay for other phases to start from.
    """

    steps: int = 1000
    init_from: tuple[Source, ...] = ()
    save_every: int = 100
    keep_steps: tuple[int, ...] = ()
    microbatches: int = 1
    log_every: int = 10


def pretrain(
    workdir: Path,
    model: ModelConfig,
    optimizer: OptimizerConfig,
    data: DataConfig = DataConfig(),
    loss: LossConfig = LossConfig(),
    config: PretrainConfig = PretrainConfig(),
    seed: int = 0,
) -> dict[str, Any]:
    """Runs one phase and returns its last losses, tokens, speed and held-out measurements."""
    if data.length > model.max_length:
        raise UserError(f"DataConfig.length={data.length} exceeds ModelConfig.max_length")
    held_out = _held_out(workdir, data)
    built = make_optimizer(optimizer, config.steps)
    step = make_train_step(model, built, make_loss(model, loss), microbatches=config.microbatches)
    manager = CheckpointManager(workdir / "checkpoints", keep_steps=config.keep_steps)
    start = starting_weights(workdir, model, config.init_from, seed)
    before = measure(model, start, held_out, drafts=False)
    state = manager.restore_latest(init_state(start, built))
    batches = _batches(workdir, data, seed, manager.restore_position())
    state, last = _train(workdir, state, step, batches, manager, config)
    after = measure(model, state.variables, held_out, drafts=loss.mtp > 0)
    manager.close()
    return {**last, **_report(before, after), "skipped": int(state.skipped)}


def starting_weights(
    workdir: Path, model: ModelConfig, sources: tuple[Source, ...], seed: int
) -> Variables:
    """Fresh weights, overwritten by each source in turn.

    Raises UserError when a source has no such parameters or they have another shape.
    """
    variables = init_variables(model, jax.random.key(seed))
    for source in sources:
        loaded = dict(trees.named_leaves(restore_weights(workdir / source.run, source.step or None)))
        prefix = f"params/{source.prefix}"
        variables = jax.tree_util.tree_map_with_path(
            lambda path, leaf, p=prefix, new=loaded, run=source.run: _taken(path, leaf, p, new, run),
            variables,
        )
    return variables


def _taken(path: Any, leaf: Any, prefix: str, loaded: dict[str, Any], run: str) -> Any:
    """The source's leaf where it is wanted, else the one there was."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    wanted = name.startswith(prefix) or name.replace("router/", "params/", 1).startswith(prefix)
    if not wanted or (name not in loaded and "/mtp/" in name):
        return leaf
    if name not in loaded or loaded[name].shape != leaf.shape:
        have = loaded[name].shape if name in loaded else "missing"
        raise UserError(f"{run}: {name} is {have}, this model wants {leaf.shape}")
    return loaded[name]


def _train(
    workdir: Path,
    state: TrainState,
    step: TrainStep,
    batches: Any,
    manager: CheckpointManager,
    config: PretrainConfig,
) -> tuple[TrainState, dict[str, float]]:
    """From the state's step to the last one; returns what was logged last, and all tokens."""
    first = int(state.step)
    log = MetricsLog(workdir / "metrics.jsonl", first)
    window: list[dict[str, Any]] = []
    last: dict[str, float] = {}
    before, tokens = _tokens_before(workdir), 0.0
    started = time.monotonic()
    with tqdm(total=config.steps, initial=first, desc=workdir.name, unit="step") as bar:
        for number in range(first + 1, config.steps + 1):
            batch = next(batches)
            state, metrics = step(state, {name: batch[name] for name in TRAINED_ON})
            window.append(metrics)
            if number % config.log_every == 0 or number == config.steps:
                last = _means(window)
                tokens += last["tokens"] * len(window)
                last["tokens_per_second"] = tokens / (time.monotonic() - started)
                last["total_tokens"] = before + tokens
                log.write(number, last)
                bar.set_postfix(_shown(last))
                window = []
            if number % config.save_every == 0 or number in {*config.keep_steps, config.steps}:
                manager.save(number, state, batches.get_state())
            bar.update()
    manager.wait()
    log.close()
    return state, {**last, "tokens": last.get("total_tokens", before)}


def _tokens_before(workdir: Path) -> float:
    """Tokens trained on before the step that the run goes on from."""
    lines = read_metrics(workdir / "metrics.jsonl")
    return lines[-1]["total_tokens"] if lines else 0.0


def _means(window: list[dict[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([m[name] for m in window])) for name in window[0]}


def _shown(means: dict[str, float]) -> dict[str, str]:
    wanted = {"loss": "loss", "mtp_kl": "mtp"}
    shown = {label: f"{means[name]:.3f}" for name, label in wanted.items() if name in means}
    return {**shown, "tok/s": f"{means['tokens_per_second']:,.0f}"}


def _batches(
    workdir: Path, data: DataConfig, seed: int, position: dict[str, Any] | None
) -> Iterator[Any]:
    """The endless batches of the mixture, from `position` on."""
    directory = workdir / data.directory
    mixture = read_mixture(directory, data.mixture)
    batches = train_iterator(directory / "tokens", mixture, data.rows, data.length, seed)
    if position is not None:
        batches.set_state(position)
    return batches


def _held_out(workdir: Path, data: DataConfig) -> list[dict[str, Any]]:
    if not data.heldout:
        return []
    tokens = workdir / data.directory / "tokens"
    return eval_batches(
        tokens, data.heldout, "heldout", data.rows, data.length, data.heldout_batches
    )


def _report(before: Measurement, after: Measurement) -> dict[str, Any]:
    """Held-out measurements by their names in the report; none where nothing was measured."""
    if before.perplexity is None:
        return {}
    named = {"perplexity_before": before.perplexity, "perplexity_after": after.perplexity}
    if after.acceptance is not None:
        named |= {
            "mtp_acceptance": after.acceptance,
            "mtp_greedy_agreement": after.greedy_agreement,
            "mtp_accepted_run": after.accepted_run,
        }
    return named
