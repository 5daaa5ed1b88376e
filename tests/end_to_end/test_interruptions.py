"""The whole recipe, stopped once in every stage: tasks, data and pretraining come out the same, and
RL and evaluations leave nothing out and nothing twice.

`bash launch/test.sh -m long -n 0`: about ten minutes on two cores.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from composer2_jax.checkpoint.manager import restore_weights
from composer2_jax.core import trees
from tests.processes import wait_for

CLONE = Path(__file__).parents[2]
PRETRAINING = ("bulk", "mtp", "long", "sft")
# What shows that a stage is in its middle. Signals alternate.
SIGNS = {
    "tasks": "sft.jsonl",
    "data": "stages/sources.json",
    **dict.fromkeys(PRETRAINING, "checkpoints/4"),
    "eval_sft": "episodes.jsonl",
    "rl": "checkpoints/1",
    "eval_rl": "episodes.jsonl",
}

pytestmark = [pytest.mark.long, pytest.mark.slow]


def start(workdir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "composer2_jax.quickstart", f"--workdir={workdir}"]
    command += ["--gin_dir=gin_configs/runs/quickstart_smoke"]
    with open(workdir.parent / "stderr.txt", "w") as errors:
        return subprocess.Popen(command, cwd=CLONE, stderr=errors, text=True)


def finish(workdir: Path) -> None:
    process = start(workdir)
    process.wait(timeout=1500)
    assert process.returncode == 0, (workdir.parent / "stderr.txt").read_text()[-2000:]


def stop_in(workdir: Path, stage: str, how: signal.Signals) -> None:
    process = start(workdir)
    wait_for(lambda: (workdir / stage / SIGNS[stage]).exists() or process.poll() is not None, 600)
    process.send_signal(how)
    process.wait(timeout=120)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert not (workdir / stage / "done.json").exists(), "it was stopped too late to show anything"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run left in peace, and one stopped in every stage."""
    peaceful, stopped = (tmp_path_factory.mktemp(name) / "run" for name in ("peaceful", "stopped"))
    finish(peaceful)
    for number, stage in enumerate(SIGNS):
        stop_in(stopped, stage, (signal.SIGKILL, signal.SIGINT)[number % 2])
    finish(stopped)
    return peaceful, stopped


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tasks_and_data_are_the_same_bytes(runs: tuple[Path, Path]) -> None:
    for folder in ("tasks", "data/tokens", "data/documents"):
        files = [
            {
                path.relative_to(run / folder): path.read_bytes()
                for path in (run / folder).rglob("*")
                if path.is_file() and path.suffix in (".jsonl", ".npy", ".array_record")
            }
            for run in runs
        ]
        assert files[0] and files[0] == files[1]


@pytest.mark.parametrize("stage", PRETRAINING)
def test_pretraining_takes_the_same_steps_to_the_same_weights(
    runs: tuple[Path, Path], stage: str
) -> None:
    first, second = (lines(run / stage / "metrics.jsonl") for run in runs)
    assert [row["step"] for row in second] == [row["step"] for row in first]
    assert [row["total_tokens"] for row in second] == [row["total_tokens"] for row in first]
    assert [row["loss"] for row in second] == [row["loss"] for row in first]
    weights = [trees.digest(restore_weights(run / stage)) for run in runs]
    assert weights[0] == weights[1]


def test_rl_trains_every_update_once_and_evaluations_every_episode(
    runs: tuple[Path, Path],
) -> None:
    for run in runs:
        assert [row["step"] for row in lines(run / "rl/metrics.jsonl")] == [1, 2, 3]
    for stage in ("eval_sft", "eval_rl"):
        keys = [
            sorted((row["task_id"], row["sample"]) for row in lines(run / stage / "episodes.jsonl"))
            for run in runs
        ]
        assert keys[0] == keys[1] and len(set(keys[0])) == len(keys[0])
