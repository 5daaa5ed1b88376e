"""The pretraining loop, phase 1 of the report: bulk, draft head, long context, SFT are one verb.

A phase starts from other runs' weights, reads batches that depend on (seed, position) alone, and
saves state and data position together, so that a killed run ends with the weights of an
uninterrupted one, bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from composer2_jax.checkpoint.manager import CheckpointManager, restore_weights
from composer2_jax.core import trees
from composer2_jax.data.pipeline import eval_batches, read_mixture, train_iterator, vocabulary_size
from composer2_jax.errors import UserError, check_at_least
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.transformer import Variables, init_variables
from composer2_jax.optim.adamw import OptimizerConfig, make_optimizer
from composer2_jax.train.losses import LossConfig, make_loss
from composer2_jax.train.measure import Measurement, measure
from composer2_jax.train.metrics import MetricsLog, read_metrics
from composer2_jax.train.state import TrainState, init_state
from composer2_jax.train.step import TrainStep, make_train_step

MAX_SKIPPED = 10  # updates in a row
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

    def __post_init__(self) -> None:
        check_at_least(self, 1, "rows", "heldout_batches")
        check_at_least(self, 2, "length")  # a token, and the next one


@dataclasses.dataclass(frozen=True)
class Source:
    """Weights of a run: its checkpoint of `step` (0: the newest), parameters under `prefix`."""

    run: str
    step: int = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "step")


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

    def __post_init__(self) -> None:
        check_at_least(self, 1, "steps", "save_every", "microbatches", "log_every")
        if self.keep_steps:
            check_at_least(self, 1, "keep_steps")


def pretrain(
    workdir: Path,
    model: ModelConfig,
    optimizer: OptimizerConfig,
    data: DataConfig,
    loss: LossConfig,
    config: PretrainConfig,
    seed: int = 0,
) -> dict[str, Any]:
    """Runs one phase and returns its last losses, tokens, speed and held-out measurements."""
    if data.length > model.max_length:
        raise UserError(f"DataConfig.length={data.length} exceeds ModelConfig.max_length")
    batches = _batches(workdir, model, data, seed)
    held_out = _held_out(workdir, data)
    built = make_optimizer(optimizer, config.steps)
    step = make_train_step(model, built, make_loss(model, loss), microbatches=config.microbatches)
    start = starting_weights(workdir, model, config.init_from, seed)
    before = measure(model, start, held_out, drafts=False)
    directory = workdir / "checkpoints"
    # Closing waits for a save under way, also after Ctrl-C: what is half written is not lost.
    with contextlib.closing(CheckpointManager(directory, keep_steps=config.keep_steps)) as manager:
        state = manager.restore_latest(init_state(start, built))
        if (position := manager.restore_position()) is not None:
            batches.set_state(position)
        state, last = _train(workdir, state, step, batches, manager, config)
    after = measure(model, state.variables, held_out, drafts=loss.mtp > 0)
    return {**last, **_report(before, after), "skipped": int(state.skipped)}


def starting_weights(
    workdir: Path, model: ModelConfig, sources: tuple[Source, ...], seed: int
) -> Variables:
    """Fresh weights, overwritten by each source in turn.

    A draft layer that no source has starts fresh, as the MTP phase wants it. Raises UserError when
    a source has no such parameters, they do not fit, or other weights are left without a source.
    """
    variables = init_variables(model, jax.random.key(seed))
    fresh = {name for name, _ in trees.named_leaves(variables)}
    for source in sources:
        stored = restore_weights(workdir / source.run, source.step or None)
        taken = {
            name: leaf
            for name, leaf in trees.named_leaves(stored)
            if name.partition("/")[2].startswith(source.prefix)
        }
        if not taken:
            raise UserError(f"{source.run}: no parameter under Source.prefix={source.prefix!r}")
        variables = jax.tree_util.tree_map_with_path(
            lambda path, leaf, taken=taken, run=source.run: _taken(path, leaf, taken, run),
            variables,
        )
        fresh -= taken.keys()
    if sources and any("/mtp/" not in name for name in fresh):
        raise UserError(f"no source of PretrainConfig.init_from has {sorted(fresh)[0]}")
    return variables


def _taken(path: Any, leaf: Any, taken: dict[str, Any], run: str) -> Any:
    """The source's leaf where it has one, else the one there was."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if name not in taken:
        return leaf
    new = taken[name]
    if (new.shape, new.dtype) != (leaf.shape, leaf.dtype):
        have, want = f"{new.shape} {new.dtype}", f"{leaf.shape} {leaf.dtype}"
        raise UserError(f"{run}: {name} is {have}, this model wants {want}")
    return new


def _train(
    workdir: Path,
    state: TrainState,
    step: TrainStep,
    batches: Any,
    manager: CheckpointManager,
    config: PretrainConfig,
) -> tuple[TrainState, dict[str, float]]:
    """From the state's step to the last one; returns what was logged last, and all tokens.

    Every save has a log line: the means of a window live in memory only.
    """
    first = int(state.step)
    with contextlib.closing(MetricsLog(workdir / "metrics.jsonl", first)) as log:
        last = _last_line(workdir)
        speed, window, lost = Speed(), [], 0
        with tqdm(total=config.steps, initial=first, desc=workdir.name, unit="step") as bar:
            for number in range(first + 1, config.steps + 1):
                batch = next(batches)
                state, metrics = step(state, {name: batch[name] for name in TRAINED_ON})
                window.append(metrics)
                saving = number % config.save_every == 0 or number in config.keep_steps
                saving |= number == config.steps
                if saving or number % config.log_every == 0 or number == 1:
                    seen = last.get("total_tokens", 0.0)
                    lost = lost_in_a_row(lost, [bool(m["skipped"]) for m in window])
                    last = _means(window)
                    last["total_tokens"] = seen + last["tokens"] * len(window)
                    last |= speed.after(last["tokens"] * len(window))
                    log.write(number, last)
                    bar.set_postfix(_shown(last))
                    window = []
                if saving:
                    manager.save(number, state, batches.get_state())
                bar.update()
    manager.wait()
    return state, {**last, "tokens": last.get("total_tokens", 0.0)}


def lost_in_a_row(before: int, skipped: Sequence[bool]) -> int:
    """How many updates up to the last of `skipped` were left out one after another.

    Raises UserError when they are so many that no more will follow: nothing is trained any more.
    """
    for lost in skipped:
        before = before + 1 if lost else 0
    if before >= MAX_SKIPPED:
        raise UserError(
            f"{before} updates in a row were not finite and left out; start again with a lower "
            f"OptimizerConfig.learning_rate, or look at the data"
        )
    return before


class Speed:
    """Tokens a second of this process, without its first log line, which is mostly compilation."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._tokens = 0.0

    def after(self, tokens: float) -> dict[str, float]:
        """Counts `tokens` more; the speed so far, once there is one."""
        now = time.monotonic()
        if self._started is None:
            self._started = now
            return {}
        self._tokens += tokens
        return {"tokens_per_second": self._tokens / max(now - self._started, 1e-9)}


def _last_line(workdir: Path) -> dict[str, float]:
    """What was logged at the step that the run goes on from."""
    lines = read_metrics(workdir / "metrics.jsonl")
    return {k: v for k, v in lines[-1].items() if k not in ("step", "time")} if lines else {}


def _means(window: list[dict[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([m[name] for m in window])) for name in window[0]}


def _shown(means: dict[str, float]) -> dict[str, str]:
    wanted = {"loss": "loss", "mtp_kl": "mtp"}
    shown = {label: f"{means[name]:.3f}" for name, label in wanted.items() if name in means}
    if "tokens_per_second" in means:
        shown["tok/s"] = f"{means['tokens_per_second']:,.0f}"
    return shown


def _batches(workdir: Path, model: ModelConfig, data: DataConfig, seed: int) -> Any:
    """The endless batches of the mixture; UserError where the model lacks some of their tokens."""
    directory = workdir / data.directory
    mixture = read_mixture(directory, data.mixture)
    splits = [(task, "train") for task in mixture] + [(data.heldout, "heldout")] * bool(
        data.heldout
    )
    model.check_vocabulary(vocabulary_size(directory / "tokens", splits), directory)
    return train_iterator(directory / "tokens", mixture, data.rows, data.length, seed)


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
