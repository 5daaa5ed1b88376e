"""Tasks survive a file; a bad line is named; a task cannot write outside its repository."""

from pathlib import Path

import pytest

from composer2_jax.envs.task import Task, is_test_path, read_tasks, write_tasks
from composer2_jax.errors import UserError
from tests.envs.samples import TASK, task


def test_tasks_survive_a_file(tmp_path: Path) -> None:
    tasks = [TASK, task(id="é", metadata={"kind": "x\ny"})]
    write_tasks(tmp_path / "new" / "tasks.jsonl", tasks)
    assert read_tasks(tmp_path / "new" / "tasks.jsonl") == tasks
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tasks.jsonl"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2"),
        ("[]", "not an object"),
        (TASK.to_json().replace('"prompt"', '"promt"'), "promt"),
        (TASK.to_json().replace('"line": 4', '"line": "4"'), "line must be int"),
        (TASK.to_json().replace('"test.py"', '"../test.py"'), "not a path"),
        (TASK.to_json().replace('"module": "lib', '"module": "bil'), "not among the files"),
        ("", "line 2"),
    ],
)
def test_a_bad_line_is_named_in_one_line(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{TASK.to_json()}\n{line}\n")
    with pytest.raises(UserError) as caught:
        read_tasks(path)
    assert "tasks.jsonl, line 2" in str(caught.value) and reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_tasks(tmp_path / "none.jsonl")


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ".git/config", "", "a\0b"])
def test_a_path_outside_the_repository_is_no_task(path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        task(files={**TASK.files, path: "x"})


def test_hidden_calls_and_answers_must_match() -> None:
    with pytest.raises(ValueError, match="3 hidden calls, 1 expected"):
        task(hidden_expected=("3",))


def test_a_task_is_equal_to_its_json() -> None:
    assert Task.from_json(TASK.to_json()) == TASK


def test_test_files_are_known_by_their_names() -> None:
    tests = ["test.py", "tests/a.py", "a/test_b.py", "b_test.go", "conftest.py"]
    others = ["contest.py", "latest.py", "testing_tools/a.py", "attest/a.py", "a.test_command"]
    assert all(map(is_test_path, tests)) and not any(map(is_test_path, others))
