"""Where the sandbox cannot be had, one line says what to type; nothing weaker is used."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from composer2_jax.envs import sandbox
from composer2_jax.envs.sandbox import InfraError
from composer2_jax.envs.workspace import Workspace
from composer2_jax.errors import UserError
from tests.envs.samples import TASK


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    for cached in (sandbox.check, sandbox.python, sandbox._program, sandbox._outer_arguments):
        cached.cache_clear()
    yield
    for cached in (sandbox.check, sandbox.python, sandbox._program, sandbox._outer_arguments):
        cached.cache_clear()


def remedy() -> str:
    with pytest.raises(UserError) as caught:
        sandbox.check()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_sandbox_works_here() -> None:
    sandbox.check()


@pytest.mark.parametrize(
    ("program", "package"), [("bwrap", "bubblewrap"), ("setpriv", "util-linux")]
)
def test_a_missing_program_names_its_package(
    monkeypatch: pytest.MonkeyPatch, program: str, package: str
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == program else which(name))
    assert remedy() == f"the sandbox needs {program}: apt-get install {package}"


def test_an_old_bubblewrap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = subprocess.CompletedProcess([], 0, "bubblewrap 0.6.1\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: shown)
    assert "0.6.1 is too old" in remedy()


def test_a_forbidding_kernel_names_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise InfraError("bwrap: No permissions to create new namespace")

    monkeypatch.setattr(sandbox, "run", forbidden)
    said = remedy()
    assert "No permissions" in said and ("sysctl -w" in said or "user namespaces" in said)


def test_no_python_for_the_sandbox_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PYTHONS", ("/nowhere/python3",))
    with pytest.raises(UserError, match="apt-get install python3"):
        sandbox.python()


def test_a_sandbox_that_cannot_be_set_up_is_no_result_of_the_command() -> None:
    with pytest.raises(InfraError, match="the sandbox failed"):
        sandbox.run(["true"], "/no/such/directory")


def test_a_command_that_does_not_exist_is_a_result() -> None:
    with Workspace.of_task(TASK) as space:
        assert sandbox.run(["sh", "-c", "no-such-command"], space.path).exit_code == 127
