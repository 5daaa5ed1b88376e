"""No path leads out of the workspace, for reading, listing or writing, by whatever name."""

import os
import threading
from pathlib import Path

import pytest

from composer2_jax.envs.tools.state import State
from composer2_jax.envs.workspace import PathError
from tests.envs.samples import state_of, use


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


def refused(state: State, path: str) -> None:
    for answer in (
        use(state, "read_file", path=path),
        use(state, "edit_file", old="secret", new="taken", path=path),
        use(state, "list_dir", path=path),
    ):
        assert answer.startswith("error: "), answer
        assert "secret" not in answer


def test_names_that_lead_out_are_refused(outside: Path) -> None:
    with state_of({"a/f.py": b"x"}) as state:
        up = os.path.relpath(outside / "secret.txt", state.workspace.path)
        twin = f"../{os.path.basename(state.workspace.path)}2/f.py"
        names = [up, str(outside / "secret.txt"), "../x", "a/../../x", "a/..", "..", twin]
        for name in [*names, "a/f.py\0", "\0", "/", "a/f.py/x"]:
            refused(state, name)
    assert (outside / "secret.txt").read_text() == "secret"


def test_links_that_lead_out_are_refused(outside: Path) -> None:
    with state_of({"a/f.py": b"x"}) as state:
        base = state.workspace.path
        up = os.path.relpath(outside, base)
        os.symlink(outside, f"{base}/absolute")
        os.symlink(up, f"{base}/relative")
        os.symlink(outside / "secret.txt", f"{base}/file")
        os.symlink("absolute", f"{base}/twice")
        os.symlink("/proc/self/root", f"{base}/magic")
        for name in ("absolute", "relative", "twice"):
            refused(state, f"{name}/secret.txt")
        for name in ("file", "absolute", "magic", f"magic{outside}/secret.txt"):
            refused(state, name)
        assert set(state.workspace.files()) == {"a/f.py"}
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_dangling_link_creates_nothing(outside: Path) -> None:
    with state_of({"f.py": b"x"}) as state:
        os.symlink(outside / "new", f"{state.workspace.path}/out")
        refused(state, "out")
        with pytest.raises(PathError):
            state.workspace.write("out", b"planted")
    assert not (outside / "new").exists()


def test_a_link_swapped_in_at_any_moment_is_refused(outside: Path) -> None:
    with state_of({"d/f.py": b"mine"}) as state:
        base, stop = state.workspace.path, threading.Event()
        (outside / "f.py").write_text("secret")
        os.symlink(outside, f"{base}/evil")

        def swap() -> None:
            while not stop.is_set():
                os.rename(f"{base}/d", f"{base}/kept")
                os.rename(f"{base}/evil", f"{base}/d")
                os.rename(f"{base}/d", f"{base}/evil")
                os.rename(f"{base}/kept", f"{base}/d")

        thread = threading.Thread(target=swap)
        thread.start()
        seen = set()
        for _ in range(2000):
            try:
                seen.add(state.workspace.read("d/f.py"))
                state.workspace.write("d/f.py", b"mine")
            except PathError:
                pass
        stop.set()
        thread.join()
        assert seen <= {b"mine", b""}
    assert (outside / "f.py").read_text() == "secret"


def test_a_pipe_or_device_in_place_of_a_file_does_not_hang() -> None:
    with state_of({"f.py": b"x"}) as state:
        os.mkfifo(f"{state.workspace.path}/pipe")
        assert use(state, "read_file", path="pipe") == "error: not a file"
        assert use(state, "edit_file", old="a", new="b", path="pipe") == "error: not a file"
        with pytest.raises(PathError):
            state.workspace.write("pipe", b"x")
