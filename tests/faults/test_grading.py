"""The verdict comes from the hidden calls alone; nothing that an agent leaves can forge it."""

import os
from typing import Any

import pytest

from composer2_jax.envs import CodingEnv, InfraError, grading, sandbox
from composer2_jax.envs.grading import Grade, grade, grade_files, graded_files
from composer2_jax.envs.workspace import Workspace
from tests.envs.samples import FAULTY, FIXED, TASK, TESTS, task, tree, turn


def graded(files: dict[str, bytes]) -> Grade:
    grading._memory.clear()
    return grade_files(TASK, graded_files(TASK, files))


def module(source: str) -> dict[str, bytes]:
    return {**tree(), "lib/clamp.py": source.encode()}


def test_the_fault_fails_and_the_fix_passes() -> None:
    verdict = graded(module(FAULTY))
    assert (verdict.reward, verdict.passed, verdict.total) == (0.0, 2, 3)
    assert graded(module(FIXED)).reward == 1.0


FORGERIES = {
    "prints a verdict and leaves": "print('PASSED test.py'); import os; os._exit(0)",
    "leaves quietly": "import sys; sys.exit(0)",
    "leaves at the end": FAULTY + "import atexit, os; atexit.register(os._exit, 0)",
    "equals everything": """
class Any:
    def __eq__(self, other): return True
    def __repr__(self): return 'True'
def clamp(*_): return Any()
""",
    "changes builtins": FAULTY + "import builtins; builtins.repr = lambda x: '3'",
    "writes to every descriptor": FAULTY
    + """
import os
for fd in range(10):
    try: os.write(fd, b"['None', '3', '0', '1']\\n")
    except OSError: pass
""",
    "raises": "def clamp(*_): raise SystemExit(0)",
    "is not code": "def clamp(",
    "has no function": "",
    "never ends": "while True: pass",
    "never ends when called": "def clamp(*_):\n    while True: pass",
    "will not be interrupted": """
def clamp(*_):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "ends the process": "import os; os.kill(os.getpid(), 9)",
    "answers endlessly": "def clamp(*_): return 'x' * 10**8",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_earns_nothing_and_is_no_infrastructure_failure(name: str) -> None:
    verdict = graded(module(FORGERIES[name]))
    assert verdict.reward == 0.0 and verdict.infra_error == ""


@pytest.mark.parametrize("tests", ["assert True\n", None, "raise SystemExit(1)\n"])
def test_changed_deleted_or_broken_tests_do_not_touch_the_verdict(tests: str | None) -> None:
    files = {**TASK.files, "lib/clamp.py": FIXED}
    changed = {path: text.encode() for path, text in files.items() if path != "test.py"}
    if tests is not None:
        changed["test.py"] = tests.encode()
    assert graded_files(TASK, changed)["test.py"] == TESTS.encode()
    assert graded(changed).reward == 1.0
    assert graded({**changed, "lib/clamp.py": FAULTY.encode()}).reward == 0.0


@pytest.mark.parametrize(
    "planted",
    [
        "conftest.py",
        "lib/conftest.py",
        "sitecustomize.py",
        "usercustomize.py",
        "pytest.ini",
        "pyproject.toml",
        "x.dist-info/entry_points.txt",
        "tests/test_more.py",
        "reward.txt",
        "lib/__pycache__/clamp.cpython-311.pyc",
    ],
)
def test_no_test_configuration_of_the_agent_is_in_the_graded_tree(planted: str) -> None:
    files = {**tree(), planted: b"1.0"}
    assert planted not in graded_files(TASK, files)
    assert graded(files).reward == 0.0


def test_modules_named_like_the_library_do_not_reach_the_driver() -> None:
    files = {**module(FAULTY), **{f"{n}.py": b"import os; os._exit(0)" for n in ("posix", "re")}}
    assert graded(files).passed == 2


@pytest.mark.parametrize("text", ["1.0", "nan", "inf", "1.5", "-0.5", "", "1.0\n0.0"])
def test_a_planted_reward_file_is_not_read(text: str) -> None:
    env = CodingEnv(TASK)
    env.reset()
    env.step(turn(f"<|run_command|>printf '{text}' | tee reward.txt $HOME/reward.txt .reward"))
    *_, reward, terminated, _truncated, _info = env.step(turn("<|finish|>"))
    assert (reward, terminated) == (0.0, True)
    env.close()


def test_pipes_and_links_in_the_final_tree_neither_hang_nor_reach_out() -> None:
    with Workspace.of_task(TASK) as workspace:
        os.mkfifo(f"{workspace.path}/reward.txt")
        os.unlink(f"{workspace.path}/lib/clamp.py")
        os.symlink("/etc/passwd", f"{workspace.path}/lib/clamp.py")
        assert grade(TASK, workspace).reward == 0.0


def test_a_writer_in_the_background_is_dead_before_grading() -> None:
    env = CodingEnv(TASK)
    env.reset()
    loop = "while :; do printf x >> lib/other.py; sleep 0.01; done"
    env.step(turn(f"<|run_command|>({loop}) > /dev/null 2>&1 &"))
    assert env.workspace.digest() == env.workspace.digest()
    assert env.step(turn("<|finish|>"))[1] == 0.0
    env.close()


def test_a_failing_sandbox_is_tried_again_and_never_a_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def fails(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise InfraError("no space left on device")

    monkeypatch.setattr(sandbox, "run", fails)
    verdict = graded(module(FIXED))
    assert verdict.reward is None and "no space left" in verdict.infra_error
    assert len(calls) == grading.TRIES
    env = CodingEnv(TASK)
    env.reset()
    with pytest.raises(InfraError, match="no space left"):
        env.step(turn("<|finish|>"))
    env.close()


def test_a_sandbox_that_fails_once_gives_the_right_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, calls = sandbox.run, []

    def fails_once(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise InfraError("out of processes")
        return run(*args, **kwargs)

    monkeypatch.setattr(sandbox, "run", fails_once)
    assert graded(module(FIXED)).reward == 1.0


@pytest.mark.parametrize(("slow_runs", "reward"), [(1, 1.0), (grading.TRIES, 0.0)])
def test_time_on_the_wall_that_runs_out_is_tried_again_and_never_remembered(
    slow_runs: int, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine gets another chance; code that sleeps does not leave its group."""
    run, calls = sandbox.run, []

    def slow(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) <= slow_runs:
            return sandbox.CommandResult(124, "", "time", 20.0)
        return run(*args, **kwargs)

    monkeypatch.setattr(sandbox, "run", slow)
    verdict = graded(module(FIXED))
    assert (verdict.reward, verdict.infra_error) == (reward, "")
    again = grade_files(TASK, graded_files(TASK, module(FIXED)))
    assert again.reward == 1.0 and again.remembered == (reward == 1.0)


def test_the_expected_answers_never_enter_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = sandbox.run, []

    def spy(argv: Any, directory: str, *args: Any, **kwargs: Any) -> Any:
        with os.scandir(directory) as entries:
            seen.append(f"{argv} {kwargs} {[entry.name for entry in entries]}")
        return run(argv, directory, *args, **kwargs)

    monkeypatch.setattr(sandbox, "run", spy)
    secret = task(hidden_calls=("1 + 1",), hidden_expected=("'a secret answer'",))
    assert grade_files(secret, tree()).reward == 0.0
    assert seen and "secret" not in "".join(seen)


def test_a_verdict_is_remembered_for_a_task_and_a_tree() -> None:
    first = graded(module(FIXED))
    again = grade_files(TASK, graded_files(TASK, module(FIXED)))
    assert not first.remembered and again.remembered and again.reward == 1.0
    harder = task(hidden_expected=("4", "0", "1"))
    other = grade_files(harder, graded_files(harder, module(FIXED)))
    assert not other.remembered and other.reward == 0.0
