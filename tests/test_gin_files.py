"""Every run's gin file binds what its verb takes; a misspelling shows here, not an hour into it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer2_jax import cli
from composer2_jax.data.coding_tasks import make_tasks
from composer2_jax.data.prepare import prepare_data
from composer2_jax.evals.suites import evaluate
from composer2_jax.rl.learner import reinforce
from composer2_jax.train.loop import pretrain

RUNS = Path(__file__).parents[1] / "gin_configs" / "runs"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tasks": make_tasks,
    "data": prepare_data,
    "rl": reinforce,
    "bulk": pretrain,
    "mtp": pretrain,
    "long": pretrain,
    "sft": pretrain,
}
SHARED = {"base", "stages", "model", "sampler"}  # included by others, or the quickstart's own
FILES = sorted(path for path in RUNS.glob("*/*.gin") if path.stem not in SHARED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_run_binds_only_what_its_verb_takes(path: Path) -> None:
    function = evaluate if path.stem.startswith("eval_") else FUNCTIONS[path.stem]
    values, config = cli.configure(function, [str(path)], [], function.__name__)
    assert "seed" in values and config


def test_every_run_is_among_the_files() -> None:
    assert len(FILES) > 15
