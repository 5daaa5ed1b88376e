"""A workspace is a clean repository with one commit and no past, and goes away with its episode."""

import errno
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from composer2_jax.envs import sandbox, workspace
from composer2_jax.envs.workspace import Workspace
from tests.envs.samples import TASK, task


def git(space: Workspace, command: str) -> str:
    result = sandbox.run(["sh", "-c", command], space.path)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_repository_has_one_commit_and_nothing_else() -> None:
    with Workspace.of_task(TASK) as space:
        assert git(space, "git status --porcelain") == ""
        assert git(space, "git log --all --format=%s") == "Start\n"
        assert git(space, "git reflog; git stash list; git tag; git remote") == ""
        assert git(space, "git fsck --full --strict --lost-found --no-reflogs") == ""
        listed = git(space, "git cat-file --batch-all-objects --batch-check").splitlines()
        reached = git(space, "git rev-list --objects --all").splitlines()
        assert {line.split()[0] for line in listed} == {line.split()[0] for line in reached}
        assert not os.path.exists(f"{space.path}/.git/hooks")


def test_the_fix_is_in_no_object() -> None:
    with Workspace.of_task(TASK) as space:
        for path in Path(space.path).rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                if path.parent.parent.name == "objects":
                    data = zlib.decompress(data)
                assert TASK.fixed_line.strip().encode() not in data
                assert not any(call.encode() in data for call in TASK.hidden_calls[1:])


def test_the_agent_can_commit_and_compare() -> None:
    with Workspace.of_task(TASK) as space:
        git(space, "echo '# more' >> lib/clamp.py; git commit -qam more")
        assert "+# more" in git(space, "git diff HEAD~1")


def test_any_file_names_and_depths_are_a_valid_repository() -> None:
    names = ["a/b/c/d.py", "a.py", "a-b.py", "a/x.py", "é ü.txt", "z" * 200, "empty"]
    files = {**TASK.files, **{name: f"# {i}\n" * i for i, name in enumerate(names)}}
    with Workspace.of_task(task(files=files)) as space:
        assert git(space, "git status --porcelain; git fsck --full --strict") == ""


def test_two_workspaces_of_a_task_are_equal_and_apart() -> None:
    with Workspace.of_task(TASK) as first, Workspace.of_task(TASK) as second:
        assert first.digest() == second.digest()
        first.write("lib/clamp.py", b"x")
        assert first.digest() != second.digest()
        assert second.read("lib/clamp.py") == TASK.files["lib/clamp.py"].encode()


def test_the_digest_sees_names_kinds_and_contents() -> None:
    with Workspace.of_task(TASK) as space:
        seen = {space.digest()}
        commands = (
            *("mkdir d", "ln -s test.py l", "ln -sf t.py l", "mv test.py t.py", "echo > t.py"),
            *("chmod +x t.py", "mkfifo p", "rm l", "rm t.py"),
            # Larger than what the tools would read.
            *("head -c 3000000 /dev/zero > large", "printf x >> large"),
        )
        for command in commands:
            git(space, command)
            seen.add(space.digest())
        assert len(seen) == 1 + len(commands)


def test_a_workspace_that_cannot_be_written_out_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    before = set(os.listdir(workspace.root()))
    handles = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(workspace, "write_all", full)
    with pytest.raises(OSError, match="no space left"):
        Workspace.of_task(TASK)
    assert set(os.listdir(workspace.root())) == before
    assert set(os.listdir("/proc/self/fd")) == handles


def test_a_write_that_stops_short_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does on a nearly full disk, or on a signal."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    with Workspace.of_task(TASK) as space:
        assert space.files() == {path: text.encode() for path, text in TASK.files.items()}
        space.write("test.py", b"0123456789" * 3)
        assert space.read("test.py") == b"0123456789" * 3
        result = sandbox.run(["cat"], space.path, stdin=b"0123456789" * 3)
        assert result.output == "0123456789" * 3


def test_the_sandbox_writes_where_the_host_reads_and_both_can_edit() -> None:
    with Workspace.of_task(TASK) as space:
        git(space, "umask 077; echo new > lib/new.py; chmod 600 lib/clamp.py")
        assert space.read("lib/new.py") == b"new\n"
        space.write("lib/new.py", b"newer\n")
        assert git(space, "cat lib/new.py; echo x >> lib/clamp.py") == "newer\n"


def test_a_closed_workspace_is_gone_whatever_was_in_it() -> None:
    space = Workspace.of_task(TASK)
    git(space, "mkdir -p a/b; touch a/b/c; chmod 000 a/b a; mkfifo p; ln -s /etc e")
    space.close()
    assert not os.path.exists(space.path)
    assert os.path.isdir("/etc")


def test_workspaces_of_a_killed_process_are_removed_by_the_next_one(tmp_path: Path) -> None:
    script = """
import sys, tempfile
from composer2_jax.envs import workspace
workspace.os.access = lambda *_: False  # not in memory, but in the folder of the test
tempfile.tempdir = sys.argv[1]
print(workspace.root(), flush=True)
if len(sys.argv) > 2: input()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, str(tmp_path)]
    first = subprocess.Popen(
        [*command, "wait"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None and first.stdin is not None
    root = first.stdout.readline().strip()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert os.path.isdir(root), "a living process lost its workspaces"
    first.kill()
    first.wait()
    first.stdin.close()
    first.stdout.close()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert os.listdir(tmp_path) == []


def test_reading_a_file_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace.of_task(TASK) as space, monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", None)
        assert b"def clamp" in space.read("lib/clamp.py")
