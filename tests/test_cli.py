"""The command line contract: what gin and the flags may say, and how bad input ends."""

import errno
import importlib
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from composer2_jax import cli
from composer2_jax.errors import UserError
from tests.processes import is_running, wait_for

ROOT = Path(__file__).parents[1]

LIBRARY = '''
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How to descend.

    rate: size of a step
    """

    rate: float = 0.1
    name: str = "sgd"

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError("Optimizer.rate must not be negative")


@dataclasses.dataclass(frozen=True)
class Unrelated:
    size: int = 1


calls = []
behaviour = None


def train(workdir: pathlib.Path, optimizer: Optimizer, steps: int = 3, seed: int = 0):
    """Trains.

    Args:
        steps: how many steps to take
    """
    calls.append((optimizer, steps, seed))
    if behaviour:
        behaviour(workdir)
    return {"loss": 0.5}
'''

BASE = """
from __gin__ import dynamic_registration
import clilib
SEED = 0
clilib.train.optimizer = @clilib.Optimizer()
clilib.train.seed = %SEED
clilib.Optimizer.rate = 0.2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory on the path with one library module; gin registers its names only once."""
    folder = tmp_path_factory.mktemp("clilib")
    (folder / "clilib.py").write_text(LIBRARY)
    (folder / "fit.py").write_text(
        '"""Fits a line."""\nfrom composer2_jax import cli\nfrom clilib import train\n'
        'if __name__ == "__main__":\n    cli.run(train)\n'
    )
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def library(folder):
    module = importlib.import_module("clilib")
    module.calls.clear()
    module.behaviour = None
    return module


@pytest.fixture
def fit(library, tmp_path, monkeypatch, capsys):
    """Calls the verb `fit` on BASE in an empty directory; gives exit code and stderr lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", os.environ["JAX_COMPILATION_CACHE_DIR"])
    (tmp_path / "base.gin").write_text(BASE)

    def call(*arguments, gin="base.gin", workdir="run"):
        caller = {"__file__": "fit.py", "__doc__": "Fits a line."}
        files = [f"--gin_file={name}" for name in gin.split()]
        code = cli.execute(library.train, [*files, f"--workdir={workdir}", *arguments], caller)
        return code, capsys.readouterr().err.splitlines()

    return call


def assert_one_line(outcome, *words):
    code, lines = outcome
    assert code == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith("fit: error: ")
    for word in words:
        assert word in lines[0]


# What gin may say


def test_files_reach_the_function_and_what_it_refers_to(fit, library):
    assert fit()[0] == 0
    assert library.calls == [(library.Optimizer(rate=0.2), 3, 0)]


@pytest.mark.parametrize("name", ["clilib.train.steps", "train.steps", "fit.steps"])
def test_an_override_may_use_the_import_the_bare_name_or_the_verb(fit, library, name):
    assert fit(f"--gin.{name}=100")[0] == 0
    assert library.calls[0][1] == 100


def test_an_override_reaches_a_macro_and_a_referenced_config(fit, library):
    assert fit("--gin.SEED=7", "--gin.Optimizer.name='adam'")[0] == 0
    assert library.calls == [(library.Optimizer(0.2, "adam"), 3, 7)]


def test_a_later_gin_file_wins_and_an_override_wins_over_both(fit, library, tmp_path):
    (tmp_path / "more.gin").write_text(
        "from __gin__ import dynamic_registration\nimport clilib\nclilib.train.steps = 5\n"
        "clilib.Optimizer.rate = 0.3\n"
    )
    assert fit("--gin.train.steps=6", gin="base.gin more.gin")[0] == 0
    assert library.calls == [(library.Optimizer(0.3), 6, 0)]


def test_a_gin_file_may_include_one_by_its_path_in_the_clone(fit, library, tmp_path):
    (tmp_path / "more.gin").write_text(
        "include 'gin_configs/runs/quickstart/base.gin'\ninclude 'base.gin'\n"
    )
    assert fit("--gin.SEED=4", gin="more.gin")[0] == 0
    assert library.calls[0][2] == 4


def test_two_runs_in_one_process_do_not_share_bindings(fit, library):
    fit("--gin.train.steps=9", workdir="first")
    fit(workdir="second")
    assert [steps for _, steps, _ in library.calls] == [9, 3]


# Bad input


def test_a_missing_gin_file_is_named(fit, tmp_path):
    assert_one_line(fit(gin="absent.gin"), "no gin file 'absent.gin'")
    (tmp_path / "outer.gin").write_text("include 'inner.gin'\n")
    assert_one_line(fit(gin="outer.gin"), "outer.gin", "no gin file 'inner.gin'")


def test_an_override_of_what_the_gin_files_do_not_refer_to_says_so(fit, library):
    result = fit("--gin.Unrelated.size=3")
    assert_one_line(result, "'Unrelated.size' exists", "do not refer to @Unrelated()")
    assert not library.calls


def test_a_bad_value_of_a_known_name_is_not_blamed_on_the_name(fit, library):
    code, lines = fit("--gin.clilib.Optimizer.rate=@typo()")
    assert code == 2 and "typo" in lines[0]
    assert "do not refer" not in lines[0] and "nearest" not in lines[0]


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("train.stesp=3", "train.steps"),
        ("clilib.Optimizer.raet=3", "Optimizer.rate"),
        ("clilib.Optimiser.rate=3", "Optimizer.rate"),
        ("fit.step=3", "fit.steps"),
        ("SEDE=3", "SEED"),
    ],
)
def test_a_misspelt_override_names_the_nearest_known_name(fit, library, override, nearest):
    assert_one_line(fit(f"--gin.{override}"), override, f"nearest known name is '{nearest}'")
    assert not library.calls


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Optimizer.rate", "Optimizer.rat", ["bad.gin, line 7", "'Optimizer.rate'"]),
        ("@clilib.Optimizer", "@clilib.Optimiser", ["bad.gin, line 5", "Optimiser"]),
        ("import clilib", "import clilab", ["bad.gin", "No module named 'clilab'"]),
        ("%SEED", "%SEDE", ["macro 'SEDE' is used but has no value"]),
        ("= 0.2", "= fast", ["bad.gin, line 7", "text needs quotes"]),
        ("= 0.2", "= (1,", ["bad.gin", "text needs quotes"]),
    ],
)
def test_a_mistake_in_a_gin_file_is_placed(fit, library, tmp_path, old, new, words):
    assert old in BASE
    (tmp_path / "bad.gin").write_text(BASE.replace(old, new))
    assert_one_line(fit(gin="bad.gin"), *words)
    assert not library.calls and not (tmp_path / "run").exists()


def test_a_binding_that_nothing_uses_is_refused(fit, tmp_path):
    (tmp_path / "bad.gin").write_text(BASE + "clilib.Unrelated.size = 2\n")
    assert_one_line(fit(gin="bad.gin"), "Unrelated.size", "nothing in this run uses it")


@pytest.mark.parametrize(
    "override", ["train.steps=1.5", "SEED='7'", "Optimizer.rate='0.1'", "Optimizer.name=3"]
)
def test_a_value_of_the_wrong_type_is_refused(fit, library, override):
    assert_one_line(fit(f"--gin.{override}"), "wrong type", override.split("=")[1])
    assert not library.calls


def test_a_value_that_a_config_refuses_is_one_line_before_anything_is_written(fit, tmp_path):
    assert_one_line(fit("--gin.Optimizer.rate=-1.0"), "Optimizer.rate must not be negative")
    assert not (tmp_path / "run").exists()


def test_a_value_must_be_a_literal(fit):
    assert_one_line(fit("--gin.Optimizer.name=adam"), "text needs quotes")
    assert_one_line(fit("--gin.train.steps"), "--gin.train.steps=VALUE")


def test_a_required_argument_without_a_value_is_named(fit, tmp_path):
    (tmp_path / "empty.gin").write_text("")
    assert_one_line(fit(gin="empty.gin"), "train.optimizer has no value")


def test_unknown_flags_and_stray_arguments_are_refused(fit):
    assert_one_line(fit("--step=3"), "'step'")
    assert_one_line(fit("stray"), "'stray'")
    assert_one_line(fit(workdir=""), "--workdir is required")


@pytest.mark.parametrize(
    ("value", "hint", "good"),
    [
        (1, int, True),
        (True, int, False),
        (1, float, True),
        (1.0, int, False),
        (True, bool, True),
        (1, bool, False),
        (None, int | None, True),
        ("a", int | None, False),
        ((1, 2), tuple[int, ...], True),
        ("ab", tuple[str, ...], False),
        ((1, "2"), tuple[int, ...], False),
        ((("a", 1),), tuple[tuple[str, int], ...], True),
        ((("a", "b"),), tuple[tuple[str, int], ...], False),
        ((("a",),), Sequence[tuple[str, int]], False),
        ({"a": 1}, dict[str, float], True),
        ([1], dict[str, float], False),
        ({"a": 1}, Mapping[str, float], True),
        ("ab", Sequence[str], False),
        ("x", Path, True),
        (3, Path, False),
        (object(), types.ModuleType, True),  # what we cannot judge is let through
    ],
)
def test_fits_judges_plain_types_and_lets_the_rest_through(value, hint, good):
    assert cli.fits(value, hint) is good


# The work directory


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_says_so_and_holds_config_metrics_and_cost(fit, library, tmp_path):
    assert fit("--gin.train.steps=4")[0] == 0
    done = json.loads((tmp_path / "run/done.json").read_text())
    assert done["loss"] == 0.5 and done["wall_seconds"] > 0 and done["peak_rss_bytes"] > 1e6
    assert "clilib.train.steps = 4" in (tmp_path / "run/config.gin").read_text()
    assert fit("--gin.train.steps=4") == (0, ["run: already done"])
    assert len(library.calls) == 1


def test_the_written_config_makes_the_same_run(fit, library):
    fit("--gin.SEED=5", "--gin.Optimizer.name='adam'")
    assert fit(gin="run/config.gin", workdir="again")[0] == 0
    assert library.calls[0] == library.calls[1]


def test_a_directory_made_by_another_config_is_left_alone(fit, tmp_path):
    fit("--gin.train.steps=4")
    before = snapshot(tmp_path)
    assert_one_line(fit("--gin.train.steps=5"), "run", "clilib.train.steps = 4, this run has 5")
    assert_one_line(fit(), "clilib.train.steps = 4, this run has (not set)")
    assert snapshot(tmp_path) == before


def test_a_stopped_run_goes_on_and_its_time_adds_up(fit, library, tmp_path):
    def stop(workdir):
        time.sleep(0.3)
        raise KeyboardInterrupt

    library.behaviour = stop
    code, lines = fit()
    assert code == 130 and lines[-1] == "fit: stopped; the same command goes on from here"
    assert not (tmp_path / "run/done.json").exists()
    spent = json.loads((tmp_path / "run/wall.json").read_text())["wall_seconds"]
    library.behaviour = None
    assert fit()[0] == 0
    done = json.loads((tmp_path / "run/done.json").read_text())
    assert done["wall_seconds"] > spent > 0.3
    assert done["starts"] == 2


def test_a_fault_of_the_program_is_not_dressed_up_as_bad_input(fit, library):
    def fail(workdir):
        raise ValueError("shapes do not match")

    library.behaviour = fail
    with pytest.raises(ValueError, match="shapes do not match"):
        fit()


def test_a_start_that_finds_its_input_bad_is_undone_and_the_mended_command_runs(
    fit, library, tmp_path
):
    def prepare_and_fail(workdir):
        (workdir / "stages").mkdir()
        (workdir / "stages/one.json").write_text("{}")
        (workdir / "checkpoints").mkdir()
        (workdir / "metrics.jsonl").write_text("")
        raise UserError("train.steps is too small")

    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("the user's own")
    library.behaviour = prepare_and_fail
    assert_one_line(fit(), "train.steps is too small")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"notes.txt", ".lock"}
    library.behaviour = None
    assert fit("--gin.fit.steps=9")[0] == 0


@pytest.mark.parametrize("work", ["checkpoints/10/weights", "episodes.jsonl", "metrics.jsonl"])
def test_what_was_trained_or_played_before_an_error_is_kept(fit, library, tmp_path, work):
    def work_and_fail(workdir):
        (workdir / work).parent.mkdir(parents=True, exist_ok=True)
        (workdir / work).write_text("hours of it")
        raise UserError("10 updates in a row were not finite")

    library.behaviour = work_and_fail
    assert_one_line(fit(), "not finite")
    assert (tmp_path / "run" / work).exists() and (tmp_path / "run/config.gin").exists()
    assert_one_line(fit("--gin.fit.steps=9"), "steps = (not set), this run has 9")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("RESOURCE_EXHAUSTED: write failed: No space left on device"),
    ],
)
def test_a_full_disk_is_one_line_however_it_is_wrapped(fit, library, tmp_path, error):
    def fill(workdir):
        raise error

    library.behaviour = fill
    assert_one_line(fit(), "no space left on the disk")
    assert not (tmp_path / "run/done.json").exists()
    library.behaviour = None
    assert fit()[0] == 0


def test_a_disk_that_is_full_from_the_start_leaves_nothing_half_written(fit, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert_one_line(fit(), "no space left on the disk")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_directory_that_cannot_be_made_is_named(fit, tmp_path):
    (tmp_path / "file").write_text("")
    assert_one_line(fit(workdir="file/run"), "--workdir=file/run", "Not a directory")
    if Path("/sys/kernel").is_dir():  # no one may make directories there, not even root
        assert_one_line(fit(workdir="/sys/kernel/run"), "--workdir=/sys/kernel/run")


# Processes


@pytest.fixture
def start(folder, library, tmp_path):
    """Starts `fit` as a real process whose function runs `body`."""

    def start(body, **environment):
        script = tmp_path / "fit.py"
        script.write_text(
            f"import clilib, os, subprocess, sys, time\nfrom composer2_jax import cli\n"
            f"def behaviour(workdir):\n    {body}\n"
            f"clilib.behaviour = behaviour\ncli.run(clilib.train)\n"
        )
        (tmp_path / "base.gin").write_text(BASE)
        path = os.pathsep.join([str(ROOT), str(folder)])
        return subprocess.Popen(
            [sys.executable, str(script), "--gin_file=base.gin", "--workdir=run"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def test_a_directory_in_use_is_refused_until_its_owner_is_gone(start, fit, tmp_path):
    owner = start("print('ready', flush=True); time.sleep(60)")
    try:
        assert owner.stdout.readline() == "ready\n"
        assert_one_line(fit(), "in use by process", str(owner.pid))
        assert not (tmp_path / "run/done.json").exists()
    finally:
        owner.kill()
        owner.wait()
    assert fit()[0] == 0


def test_peak_memory_counts_child_processes(start, tmp_path):
    child = "x = bytearray(300 << 20); import time; time.sleep(1.5)"
    assert start(f"subprocess.run([sys.executable, '-c', {child!r}])").wait(timeout=30) == 0
    done = json.loads((tmp_path / "run/done.json").read_text())
    assert 300 << 20 < done["peak_rss_bytes"] < 600 << 20


def test_a_verb_dies_with_the_parent_that_asked_for_it(folder, tmp_path):
    (tmp_path / "base.gin").write_text(BASE)
    (tmp_path / "verb.py").write_text(
        "import clilib, time\nfrom composer2_jax import cli\n"
        "def behaviour(workdir):\n    (workdir / 'on').touch()\n    time.sleep(60)\n"
        "clilib.behaviour = behaviour\ncli.run(clilib.train)\n"
    )
    parent = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, 'verb.py', '--gin_file=base.gin',"
        f" '--workdir=run'], env={{**os.environ, {cli.PARENT_VARIABLE!r}: str(os.getpid())}})\n"
        "print(child.pid, flush=True)\nchild.wait()\n"
    )
    path = os.pathsep.join([str(ROOT), str(folder)])
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(process.stdout.readline())
    wait_for(lambda: (tmp_path / "run/on").exists())
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(child))


def test_a_really_full_disk_ends_in_one_line(start, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(run)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        process = start("open(workdir / 'big', 'wb').write(bytes(1 << 20))")
        assert process.wait(timeout=30) == 2
        assert not (run / "done.json").exists()
    finally:
        subprocess.run(["umount", str(run)], check=True)


def test_the_command_line_loads_no_accelerator():
    code = "import sys, composer2_jax.cli, composer2_jax.quickstart; print('jax' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "False\n"


def test_sibling_runs_share_a_compile_cache_also_where_jax_is_loaded(monkeypatch, tmp_path):
    told = {}
    jax = types.SimpleNamespace(config=types.SimpleNamespace(update=told.__setitem__))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    cli.prepare_process(tmp_path / "bulk")
    wanted = str(tmp_path / "compile_cache")
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == wanted
    assert told["jax_compilation_cache_dir"] == wanted


# Help


def test_help_shows_the_verb_its_flags_and_every_argument(library, capsys):
    code = cli.execute(library.train, ["--help"], {"__file__": "fit.py", "__doc__": "Fits a line."})
    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith("Fits a line.")
    assert "--gin_file=FILE" in text and "--workdir=DIR" in text
    for line in [
        "fit.optimizer: Optimizer = required",
        "fit.steps: int = 3",
        "how many steps to take",
        "Optimizer.rate: float = 0.1",
        "size of a step",
    ]:
        assert line in text
