"""The pretraining loop: phases that start from one another, logs, and exact resumption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from composer2_jax.checkpoint.manager import restore_weights
from composer2_jax.core.trees import digest, named_leaves
from composer2_jax.data.store import write_tokens
from composer2_jax.errors import UserError
from composer2_jax.train import loop
from composer2_jax.train.loop import DataConfig, Source
from composer2_jax.train.losses import LossConfig
from composer2_jax.train.metrics import read_metrics
from tests.model import tiny
from tests.train import runs

HELDOUT = dataclasses.replace(runs.DATA, heldout="cycles", heldout_batches=2)
TRUNK = dataclasses.replace(runs.MODEL, num_mtp_layers=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a trunk of 6 steps whose step 3 is kept."""
    root = tmp_path_factory.mktemp("runs")
    runs.write_data(root)
    runs.run(root / "bulk", model=TRUNK, data=HELDOUT, keep_steps=(3,))
    return root


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ends the run as a kill would, right after `step` updates of this process."""
    whole = loop.make_train_step

    def make(*args: Any, **kwargs: Any) -> Any:
        inner, count = whole(*args, **kwargs), iter(range(step))

        def stopping(state: Any, batch: Any) -> Any:
            if next(count, None) is None:
                raise KeyboardInterrupt
            return inner(state, batch)

        return stopping

    monkeypatch.setattr(loop, "make_train_step", make)


@pytest.mark.parametrize("killed_after", [1, 5])
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    """Killed before the first save, and between two saves: weights, data and log are the same."""
    workdir = root / f"killed{killed_after}"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_after(patched, killed_after)
        runs.run(workdir, model=TRUNK, data=HELDOUT, keep_steps=(3,))
    runs.run(workdir, model=TRUNK, data=HELDOUT, keep_steps=(3,))
    for step in (3, 6):
        wanted = digest(restore_weights(root / "bulk", step))
        assert digest(restore_weights(workdir, step)) == wanted
    ours, theirs = (read_metrics(run / "metrics.jsonl") for run in (workdir, root / "bulk"))
    assert [line["step"] for line in ours] == [1, 2, 3, 4, 5, 6]
    for name in ("loss", "grad_norm", "total_tokens"):
        assert [line[name] for line in ours] == [line[name] for line in theirs], name


def test_the_log_loses_no_step_when_saves_and_log_lines_do_not_coincide(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The means of steps since the last log line live in memory only."""
    whole = runs.run(root / "whole", model=TRUNK, save_every=2, log_every=5)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_after(patched, 3)
        runs.run(root / "cut", model=TRUNK, save_every=2, log_every=5)
    cut = runs.run(root / "cut", model=TRUNK, save_every=2, log_every=5)
    assert cut["tokens"] == whole["tokens"] > 0
    assert cut["loss"] == whole["loss"]


def test_a_finished_run_that_is_run_again_reports_the_same(root: Path) -> None:
    """Killed after the last save and before done.json."""
    first = runs.run(root / "again", model=TRUNK, data=HELDOUT)
    second = runs.run(root / "again", model=TRUNK, data=HELDOUT)
    for name in ("loss", "tokens", "perplexity_before", "perplexity_after", "skipped"):
        assert second[name] == first[name], name


def test_phases_start_from_one_another(root: Path) -> None:
    """The draft phase on the middle checkpoint, then the final trunk with that draft layer."""
    draft = runs.run(
        root / "mtp",
        steps=4,
        data=HELDOUT,
        init_from=(Source("../bulk", step=3),),
        loss=LossConfig(next_token=0.0, mtp=1.0),
        optimizer=dataclasses.replace(runs.OPTIMIZER, trainable=("mtp",)),
    )
    assert 0.0 < draft["mtp_acceptance"] <= 1.0
    assert 0.0 <= draft["mtp_greedy_agreement"] <= 1.0
    middle = dict(named_leaves(restore_weights(root / "bulk", 3)))
    for name, leaf in named_leaves(restore_weights(root / "mtp")):
        if "/mtp/" not in name:
            np.testing.assert_array_equal(leaf, middle[name], err_msg=name)
    sources = (Source("../bulk"), Source("../mtp", prefix="mtp"))
    joined = dict(named_leaves(loop.starting_weights(root / "long", runs.MODEL, sources, seed=0)))
    final = dict(named_leaves(restore_weights(root / "bulk")))
    trained = dict(named_leaves(restore_weights(root / "mtp")))
    for name, leaf in joined.items():
        wanted = trained[name] if "/mtp/" in name else final[name]
        np.testing.assert_array_equal(leaf, wanted, err_msg=name)


def test_held_out_perplexity_falls(root: Path) -> None:
    report = runs.run(root / "learns", steps=24, save_every=24, model=TRUNK, data=HELDOUT)
    assert report["perplexity_after"] < 0.9 * report["perplexity_before"]
    assert report["skipped"] == 0 and report["tokens_per_second"] > 0


def test_weights_that_do_not_fit_are_named(root: Path) -> None:
    wider = dataclasses.replace(TRUNK, dense_dim=64)
    with pytest.raises(UserError, match=r"dense_blocks_0/mlp/\w+_proj is \(\d+, \d+\)"):
        loop.starting_weights(root / "x", wider, (Source("../bulk"),), seed=0)
    with pytest.raises(UserError, match="no checkpoint of step 5"):
        loop.starting_weights(root / "x", TRUNK, (Source("../bulk", step=5),), seed=0)
    with pytest.raises(UserError, match="no checkpoints there"):
        loop.starting_weights(root / "x", TRUNK, (Source("../nowhere"),), seed=0)


def test_rows_longer_than_the_model_allows_are_refused(root: Path) -> None:
    with pytest.raises(UserError, match="max_length"):
        runs.run(root / "y", data=DataConfig(length=65))


def test_tokens_that_the_model_does_not_have_are_refused(root: Path) -> None:
    smaller = dataclasses.replace(runs.MODEL, vocab_size=tiny.VOCAB - 1)
    with pytest.raises(UserError, match=r"has 48 tokens, but ModelConfig.vocab_size=47"):
        runs.run(root / "z", model=smaller)


def test_token_files_of_different_tokenizers_are_not_mixed(tmp_path: Path) -> None:
    data = runs.write_data(tmp_path)
    other = [(np.arange(1, 9), np.ones(8, int))]
    write_tokens(data / "tokens", "other", "train", other, vocab_size=tiny.VOCAB, tokenizer="other")
    (data / "mixtures.json").write_text('{"pretrain": {"cycles": 0.5, "other": 0.5}}')
    with pytest.raises(UserError, match=r"cycles/train and other/train are of different tok"):
        runs.run(tmp_path / "z")


def test_a_run_that_trains_nothing_any_more_ends(root: Path) -> None:
    """An infinite rate makes weights that are not finite: from then on every update is left out."""
    hopeless = dataclasses.replace(runs.OPTIMIZER, learning_rate=float("inf"), warmup_steps=0)
    with pytest.raises(UserError, match=r"1\d updates in a row .* OptimizerConfig.learning_rate"):
        runs.run(root / "lost", steps=30, log_every=4, save_every=30, optimizer=hopeless)


def test_updates_are_lost_in_a_row_only_without_a_good_one_between() -> None:
    assert loop.lost_in_a_row(3, [True, False, True]) == 1
    assert loop.lost_in_a_row(3, [True] * 6) == 9
    with pytest.raises(UserError, match="10 updates"):
        loop.lost_in_a_row(3, [True] * 7)
