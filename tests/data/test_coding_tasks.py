"""The verb `tasks`: what it leaves, and that a stopped run goes on to the same files."""

import json
from pathlib import Path
from typing import Any

import pytest

from composer2_jax.data import coding_tasks
from composer2_jax.data.coding_tasks import check_grading, make_tasks
from composer2_jax.envs import sandbox
from composer2_jax.envs.solver import Transcript, play
from composer2_jax.envs.synthesis import repaired
from composer2_jax.envs.task import read_tasks
from composer2_jax.errors import UserError
from composer2_jax.files import read_json_lines

SMALL: dict[str, Any] = {
    "sft_tasks": 9,
    "rl_tasks": 5,
    "validation_tasks": 3,
    "heldout_tasks": 3,
    "cross_check": 1,
    "num_workers": 1,
}
FILES = ("sft.jsonl", "rl.jsonl", "validation.jsonl", "heldout.jsonl", "transcripts.jsonl")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding_tasks, "CHUNK", 4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tasks")
    return folder, make_tasks(folder, **SMALL)


def test_the_metrics_say_what_was_made(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, metrics = finished
    for name, count in (("sft", 9), ("rl", 5), ("validation", 3), ("heldout", 3)):
        assert len(read_tasks(folder / f"{name}.jsonl")) == metrics[name]["tasks"] == count
        assert sum(metrics[name]["fault_kinds"].values()) == count
        assert metrics[name]["cross_checked"] == 1
        assert metrics[name]["dropped"] == json.loads((folder / f"dropped/{name}.json").read_text())
    assert metrics["transcripts"]["episodes"] == 9
    assert metrics["transcripts"]["mean_turns"] > 4
    assert not (folder / "transcript_parts").exists()


def test_transcripts_follow_the_tasks_in_order(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    lines = read_json_lines(folder / "transcripts.jsonl")
    assert [line["task_id"] for line in lines] == [t.id for t in read_tasks(folder / "sft.jsonl")]
    for line in lines:
        turns = [message for message in line["messages"] if message["role"] == "assistant"]
        assert len(turns) == len(line["trained"])


def test_a_stopped_run_goes_on_to_the_same_files(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def stopping(task: Any, *rest: Any) -> Transcript:
        if task.id == "sft-00005":
            raise KeyboardInterrupt
        played.append(task.id)
        return play(task, *rest)

    monkeypatch.setattr(coding_tasks, "play", stopping)
    with pytest.raises(KeyboardInterrupt):
        make_tasks(tmp_path, **SMALL)
    assert not (tmp_path / "transcripts.jsonl").exists()
    (tmp_path / "heldout.jsonl").unlink()

    def counting(task: Any, *rest: Any) -> Transcript:
        played.append(task.id)
        return play(task, *rest)

    played.clear()
    monkeypatch.setattr(coding_tasks, "play", counting)
    metrics = make_tasks(tmp_path, **SMALL)
    folder, uninterrupted = finished
    assert sorted(played) == [f"sft-{number:05d}" for number in range(4, 9)]
    assert metrics == uninterrupted
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_finished_run_makes_nothing_again(
    finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, metrics = finished
    monkeypatch.setattr(coding_tasks, "EnvFleet", None)
    monkeypatch.setattr(coding_tasks.Pool, "tasks", None)
    assert make_tasks(folder, **SMALL) == metrics


def test_asking_for_more_tasks_than_there_are_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coding_tasks.Pool, "tasks", lambda *_: iter(()))
    with pytest.raises(UserError, match="sft_tasks = 9: only 0 different tasks"):
        make_tasks(tmp_path, **SMALL)
    assert not (tmp_path / "sft.jsonl").exists()


def test_a_task_that_the_sandbox_grades_otherwise_ends_the_run(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    task = read_tasks(finished[0] / "sft.jsonl")[0]
    with pytest.raises(RuntimeError, match=r"\(1.0, 1.0\) before and after"):
        check_grading([repaired(task)], 1, 1, 0)


def test_a_missing_sandbox_is_said_before_any_task_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    sandbox.check.cache_clear()
    with pytest.raises(UserError, match="apt-get install bubblewrap"):
        make_tasks(tmp_path, **SMALL)
    assert not list(tmp_path.iterdir())
