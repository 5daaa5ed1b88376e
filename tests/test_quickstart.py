"""The quickstart as a sequence of stages, with small verbs in place of the real ones."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from composer2_jax import quickstart, stages
from composer2_jax.envs import sandbox
from tests.processes import is_running, wait_for

ROOT = Path(__file__).parents[1]

LIBRARY = '''
import pathlib
import sys
import time


def work(workdir: pathlib.Path, seed: int = 0, behaviour: str = "ok"):
    """Notes that it ran, then does what `behaviour` says."""
    with open(workdir / "starts.txt", "a") as file:
        file.write(f"{seed}\\n")
    first = len((workdir / "starts.txt").read_text().splitlines()) == 1
    if behaviour == "fail" and first:
        sys.exit("the loss is not a number")
    if behaviour == "slow" and first:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (workdir / "saved.txt").touch()
            raise
    return {"seen": seed}
'''
RUNNER = """
import signal
import sys
# A shell starts what runs in its background with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from composer2_jax import quickstart, stages
real = stages.command
stages.command = lambda stage, seed: [sys.executable, sys.argv[1], *real(stage, seed)[4:]]
if __name__ == "__main__":
    sys.exit(quickstart.main(sys.argv[2:]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of gin files for the stages a, b and (control) c, and a verb that they share."""
    (tmp_path / "quicklib.py").write_text(LIBRARY)
    verb = tmp_path / "work.py"
    verb.write_text(
        '"""Works."""\nfrom composer2_jax import cli\nfrom quicklib import work\n'
        'if __name__ == "__main__":\n    cli.run(work)\n'
    )
    (tmp_path / "runner.py").write_text(RUNNER)
    real = stages.command
    monkeypatch.setattr(
        stages, "command", lambda stage, seed: [sys.executable, str(verb), *real(stage, seed)[4:]]
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    gin = tmp_path / "gin"
    gin.mkdir()
    (gin / "stages.gin").write_text(
        "from __gin__ import dynamic_registration\nfrom composer2_jax import quickstart\n"
        "quickstart.plan.run = (('a', 'work', 10), ('b', 'work', 20))\n"
        "quickstart.plan.control = (('c', 'work', 5),)\n"
        "quickstart.plan.disk_gigabytes = 0.0\n"
    )
    for name in "abc":
        write_stage(gin, name, "ok")
    return tmp_path


def write_stage(gin, name, behaviour):
    (gin / f"{name}.gin").write_text(
        "from __gin__ import dynamic_registration\nimport quicklib\n"
        "include 'gin_configs/runs/quickstart/base.gin'\n"
        f"quicklib.work.seed = %SEED\nquicklib.work.behaviour = {behaviour!r}\n"
    )


@pytest.fixture
def run(folder, capfd):
    """Runs the quickstart in this process; gives exit code, stdout and the lines of stderr."""

    def call(*arguments):
        code = quickstart.main(
            [f"--workdir={folder / 'run'}", f"--gin_dir={folder / 'gin'}", *arguments]
        )
        out, err = capfd.readouterr()
        return code, out, err.splitlines()

    return call


def starts(folder, name):
    path = folder / "run" / name / "starts.txt"
    return path.read_text().split() if path.exists() else []


def test_stages_run_in_order_with_the_seed_and_end_in_a_report(run, folder):
    code, out, lines = run("--seed=3")
    assert code == 0
    assert [line.partition(":")[0] for line in lines] == [
        "stage 1/2 a (work)",
        "stage 2/2 b (work)",
    ]
    assert starts(folder, "a") == starts(folder, "b") == ["3"]
    assert "held-out pass rate" in out and str(folder / "run/report.html") in out
    assert json.loads((folder / "run/report.json").read_text())["seed"] == 3


def test_a_second_complete_run_only_prints_the_result(run, folder):
    first = run()
    second = run()
    assert second == (0, first[1], [])
    assert starts(folder, "a") == ["0"]


def test_a_failing_stage_is_named_with_its_last_words_and_its_exit_code(run, folder):
    write_stage(folder / "gin", "b", "fail")
    code, out, lines = run()
    assert (code, out) == (1, "")
    assert lines[-1] == "stage b (work) failed with exit code 1: the loss is not a number"
    assert run()[0] == 0
    assert (starts(folder, "a"), starts(folder, "b")) == (["0"], ["0", "0"])


def test_bad_input_of_a_stage_ends_the_run_with_code_2(run, folder):
    (folder / "gin" / "a.gin").write_text("include 'absent.gin'\n")
    code, _, lines = run()
    assert code == 2
    assert "absent.gin" in lines[-1] and "stage a" in lines[-1]


def test_the_directory_of_another_run_is_refused_and_left_alone(run, folder):
    run("--seed=1")
    before = (folder / "run/quickstart.json").read_bytes()
    code, _, lines = run("--seed=2")
    assert (code, len(lines)) == (2, 1)
    assert "--seed=1" in lines[0] and "--seed=2" in lines[0]
    shutil.copytree(folder / "gin", folder / "other")
    code, _, lines = run("--seed=1", f"--gin_dir={folder / 'other'}")
    assert (code, len(lines)) == (2, 1)
    assert "--gin_dir=" in lines[0]
    assert (folder / "run/quickstart.json").read_bytes() == before


def test_the_control_can_be_added_to_a_finished_run(run, folder):
    run()
    code, _, lines = run("--control")
    assert code == 0
    assert [line.partition(":")[0] for line in lines] == ["stage 3/3 c (work)"]
    assert starts(folder, "a") == ["0"]


def test_a_finished_stage_of_another_config_is_refused_and_a_comment_is_no_config(run, folder):
    run()
    gin_file = folder / "gin" / "a.gin"
    text = gin_file.read_text()
    gin_file.write_text("# new words\n" + text.replace("'ok'", "'ok'  # fine"))
    assert run()[0] == 0
    gin_file.write_text(text.replace("'ok'", "'better'"))
    before = (folder / "run/quickstart.json").read_bytes()
    code, _, lines = run()
    assert (code, len(lines)) == (2, 1)
    assert str(folder / "run/a") in lines[0] and "a.gin" in lines[0]
    assert (folder / "run/quickstart.json").read_bytes() == before
    # What was made from the old one is not kept beside the new one.
    shutil.rmtree(folder / "run/a")
    code, _, lines = run()
    assert (code, len(lines)) == (2, 1) and str(folder / "run/b") in lines[0]
    shutil.rmtree(folder / "run/b")
    assert run()[0] == 0
    assert len(starts(folder, "a")) == len(starts(folder, "b")) == 1


def test_a_config_changed_while_an_earlier_stage_runs_is_the_one_that_counts(run, folder):
    write_stage(folder / "gin", "a", "fail")
    assert run()[0] == 1
    text = (folder / "gin/b.gin").read_text()
    (folder / "gin/b.gin").write_text(text.replace("'ok'", "'fine'"))
    assert run()[0] == 0
    assert run() == (0, run()[1], [])


def test_a_stage_made_by_hand_is_taken_and_said(run, folder):
    run()
    state = json.loads((folder / "run/quickstart.json").read_text())
    del state["configs"]["b"]
    (folder / "run/quickstart.json").write_text(json.dumps(state))
    code, _, lines = run()
    assert code == 0 and len(lines) == 1 and "outside of this quickstart" in lines[0]


def test_a_stage_without_a_gin_file_is_named_before_anything_is_written(run, folder):
    (folder / "gin" / "b.gin").unlink()
    code, _, lines = run()
    assert (code, len(lines)) == (2, 1)
    assert "stage b has no gin file" in lines[0]
    assert not (folder / "run").exists()


def test_too_little_disk_is_said_before_the_first_stage(run, folder):
    code, _, lines = run("--gin.plan.disk_gigabytes=1e9")
    assert (code, len(lines)) == (2, 1)
    assert "GB of free disk, a run needs 1000000000.0 GB" in lines[0]
    assert not starts(folder, "a")


def test_a_missing_sandbox_is_said_before_the_first_stage(run, folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    sandbox.check.cache_clear()
    code, _, lines = run()
    assert (code, len(lines)) == (2, 1)
    assert lines[0].endswith("the sandbox needs bwrap: apt-get install bubblewrap")
    assert not starts(folder, "a")


def test_set_up_seconds_add_up_over_restarts(run, folder, monkeypatch):
    write_stage(folder / "gin", "b", "fail")
    monkeypatch.setenv(quickstart.SETUP_VARIABLE, "30")
    assert run()[0] == 1
    monkeypatch.setenv(quickstart.SETUP_VARIABLE, "2")
    assert run()[0] == 0
    assert json.loads((folder / "run/report.json").read_text())["setup_seconds"] == 32
    state = json.loads((folder / "run/quickstart.json").read_text())
    assert state["wall_seconds"] > 0 and state["peak_rss_bytes"] > 0


# Stopping


@pytest.fixture
def slow(folder):
    """A quickstart process whose stage `a` hangs at its first start."""
    write_stage(folder / "gin", "a", "slow")
    process = subprocess.Popen(
        [
            *(sys.executable, str(folder / "runner.py"), str(folder / "work.py")),
            *(f"--workdir={folder / 'run'}", f"--gin_dir={folder / 'gin'}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: starts(folder, "a"))
    child = int((folder / "run/a/.lock").read_text())
    yield process, child
    process.kill()
    process.wait()


def test_an_interrupt_reaches_the_stage_and_the_same_command_goes_on(slow, run, folder):
    process, child = slow
    process.send_signal(signal.SIGINT)
    lines = process.communicate(timeout=20)[1].splitlines()
    assert process.returncode == 130
    assert lines[-1] == "quickstart: stopped; the same command goes on from here"
    assert (folder / "run/a/saved.txt").exists() and not is_running(child)
    assert run()[0] == 0
    assert starts(folder, "a") == ["0", "0"]


def test_a_killed_run_leaves_no_stage_behind_and_goes_on(slow, run, folder):
    process, child = slow
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(child))
    assert run()[0] == 0
    assert starts(folder, "a") == ["0", "0"]


def test_a_killed_stage_is_named_with_its_signal(slow, folder):
    process, child = slow
    os.kill(child, signal.SIGKILL)
    lines = process.communicate(timeout=20)[1].splitlines()
    assert process.returncode == 128 + signal.SIGKILL
    assert "stage a (work) failed with exit code 137" in lines[-1]


def test_two_runs_cannot_share_a_directory(slow, run):
    process, _ = slow
    code, _, lines = run()
    assert (code, len(lines)) == (2, 1)
    assert f"in use by process {process.pid}" in lines[0]


# Estimates


def stage(tmp_path, name, expected, spent=None, done=False):
    workdir = tmp_path / name
    workdir.mkdir()
    if spent is not None:
        text = json.dumps({"wall_seconds": spent})
        (workdir / ("done.json" if done else "wall.json")).write_text(text)
    return stages.Stage(name, "work", expected, tmp_path / "x.gin", workdir)


def test_an_estimate_starts_from_what_is_expected(tmp_path):
    chosen = [stage(tmp_path, "a", 100), stage(tmp_path, "b", 200)]
    assert stages.estimate(chosen, 0) == stages.Estimate(stage=100, run=300)


def test_a_slow_machine_is_told_a_longer_time_after_the_first_stage(tmp_path):
    chosen = [stage(tmp_path, "a", 940, spent=1940, done=True), stage(tmp_path, "b", 200)]
    assert stages.estimate(chosen, 1) == stages.Estimate(stage=400, run=400)


def test_a_short_first_stage_does_not_decide_the_pace(tmp_path):
    chosen = [stage(tmp_path, "a", 1, spent=10, done=True), stage(tmp_path, "b", 610)]
    assert stages.estimate(chosen, 1).run == 700


def test_a_resumed_stage_is_credited_with_what_it_has_done(tmp_path):
    chosen = [stage(tmp_path, "a", 100, spent=70), stage(tmp_path, "b", 200)]
    assert stages.estimate(chosen, 0) == stages.Estimate(stage=30, run=230)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")],
)
def test_durations_are_in_words(seconds, words):
    assert stages.in_words(seconds) == words


# What stands in the clone


def test_every_stage_of_the_quickstart_has_its_verb_and_its_gin_file(tmp_path):
    from composer2_jax import cli

    gin_dir = ROOT / "gin_configs/runs/quickstart"
    bound, _ = cli.configure(quickstart.plan, [str(gin_dir / "stages.gin")], [], "quickstart")
    chosen = quickstart.plan(**bound)["plan"].stages(gin_dir, tmp_path, with_control=True)
    names = [stage.name for stage in chosen]
    assert names == [
        *("tasks", "data", "bulk", "mtp", "long", "sft"),
        *("eval_sft", "rl", "eval_rl", "eval_scripted"),
    ]
    for stage in chosen:
        assert importlib.util.find_spec(f"composer2_jax.{stage.verb}"), stage
