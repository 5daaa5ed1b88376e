"""The whole recipe, shrunk to about two minutes: every stage leaves what the next one needs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from composer2_jax.envs.task import read_tasks

CLONE = Path(__file__).parents[2]
STAGES = ("tasks", "data", "bulk", "mtp", "long", "sft", "eval_sft", "rl", "eval_rl")


def quickstart(workdir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "composer2_jax.quickstart",
            "--gin_dir=gin_configs/runs/quickstart_smoke",
            f"--workdir={workdir}",
        ],
        cwd=CLONE,
        capture_output=True,
        text=True,
        timeout=1500,
    )


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("smoke") / "run"
    done = quickstart(workdir)
    assert done.returncode == 0, done.stderr[-2000:]
    return workdir


def done(workdir: Path, stage: str) -> dict[str, Any]:
    return json.loads((workdir / stage / "done.json").read_text())


def metrics(workdir: Path, stage: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in open(workdir / stage / "metrics.jsonl")]


def test_every_stage_is_done_and_says_what_it_used(workdir: Path) -> None:
    for stage in STAGES:
        assert done(workdir, stage)["wall_seconds"] > 0
        assert 0 < done(workdir, stage)["peak_rss_bytes"] < 6 * 2**30
        assert (workdir / stage / "config.gin").is_file()


def test_no_source_function_is_shared_between_training_and_heldout(workdir: Path) -> None:
    train = read_tasks(workdir / "tasks/sft.jsonl") + read_tasks(workdir / "tasks/rl.jsonl")
    held_out = read_tasks(workdir / "tasks/heldout.jsonl")
    assert held_out and train
    assert not {task.group for task in train} & {task.group for task in held_out}
    assert not {task.function for task in train} & {task.function for task in held_out}


def test_pretraining_learns_and_the_draft_phase_moves_nothing_else(workdir: Path) -> None:
    bulk, mtp = done(workdir, "bulk"), done(workdir, "mtp")
    assert bulk["perplexity_after"] < bulk["perplexity_before"]
    assert mtp["perplexity_before"] == mtp["perplexity_after"]
    assert 0 < mtp["mtp_acceptance"] <= 1
    assert [row["step"] for row in metrics(workdir, "sft")][-1] == 12


def test_rl_trains_on_policy_tokens_it_sampled(workdir: Path) -> None:
    rows = metrics(workdir, "rl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[0]["mismatch_max"] < 1e-3, "the trainer disagrees with the sampler at equal weights"
    assert all(row["infra_failures"] == 0 for row in rows)
    assert all(row["staleness_max"] <= 1 for row in rows)


def test_evaluations_hold_the_same_tasks_and_whole_conversations(workdir: Path) -> None:
    episodes = {
        stage: [json.loads(line) for line in open(workdir / stage / "episodes.jsonl")]
        for stage in ("eval_sft", "eval_rl")
    }
    names = {s: sorted((e["task_id"], e["sample"]) for e in e_s) for s, e_s in episodes.items()}
    assert names["eval_sft"] == names["eval_rl"] and len(names["eval_rl"]) == 16
    for episode in episodes["eval_rl"]:
        assert episode["messages"][0]["role"] == "user"
        assert episode["turns"] == sum(m["role"] == "assistant" for m in episode["messages"])


def test_the_report_stands_alone_and_a_second_run_only_prints_it(workdir: Path) -> None:
    report = json.loads((workdir / "report.json").read_text())
    assert {"sft", "rl", "gain", "perplexity_after", "mtp_acceptance"} <= report.keys()
    page = (workdir / "report.html").read_text()
    assert "<svg" in page and 'src="http' not in page and 'href="http' not in page
    before = {path: path.stat().st_mtime_ns for path in workdir.glob("*/done.json")}
    again = quickstart(workdir)
    assert again.returncode == 0 and "held-out pass rate" in again.stdout + again.stderr
    assert before == {path: path.stat().st_mtime_ns for path in workdir.glob("*/done.json")}
