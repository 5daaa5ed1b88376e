"""Edits change the bytes they name and no other, whatever the file's endings and encoding."""

import os
import stat

import pytest

from composer2_jax.envs.tools.files import replace_once
from composer2_jax.envs.tools.state import ToolError
from tests.envs.samples import state_of, use


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc", "a\nb", "a\nB", b"a\r\nB\r\nc"),
        (b"a\r\nb\r\nc", "a\r\nb", "a\r\nB", b"a\r\nB\r\nc"),
        (b"a\r\nb\r\nc", "b", "b\nB", b"a\r\nb\r\nB\r\nc"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\n"),
        (b"a\nb\r\nc\n", "c", "C", b"a\nb\r\nC\n"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1", "x = 2", b"\xef\xbb\xbfx = 2\n"),
        (b"# caf\xe9\nx = 1\n", "x = 1", "x = 2", b"# caf\xe9\nx = 2\n"),
        (b"\tif a:\n\t\treturn  \n", "a:", "b:", b"\tif b:\n\t\treturn  \n"),
        (b"x  \ny", "x  \n", "x\n", b"x\ny"),
        (b"a\nb\n", "b\n", "", b"a\n"),
        (b"s = 'a.*[b'", "a.*[b", "\\1", b"s = '\\1'"),
        ("é = 1".encode(), "é", "ü", "ü = 1".encode()),
    ],
)
def test_only_the_named_bytes_change(before: bytes, old: str, new: str, after: bytes) -> None:
    with state_of({"f.py": before}) as state:
        assert use(state, "edit_file", old=old, new=new, path="f.py") == "ok"
        assert state.workspace.read("f.py") == after
        assert use(state, "undo_edit") == "ok"
        assert state.workspace.read("f.py") == before


@pytest.mark.parametrize(
    ("data", "old", "new", "reason"),
    [
        (b"x x", "x", "y", "occurs 2 times"),
        (b"aaa", "aa", "b", "occurs 2 times"),
        (b"a\r\na\n", "a\n", "b\n", "occurs 2 times"),
        (b"x", "", "y", "old is empty"),
        (b"x", "x", "x", "the same"),
        (b"a\r\nb", "a\nb", "a\r\nb", "the same"),
        ("e\u0301".encode(), "\u00e9", "e", "not found"),
        (b"x", "y", "z", "not found"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(
    data: bytes, old: str, new: str, reason: str
) -> None:
    with pytest.raises(ToolError, match=reason):
        replace_once(data, old, new)
    with state_of({"f.py": data}) as state:
        answer = use(state, "edit_file", old=old, new=new, path="f.py")
        assert answer.startswith("error: ") and reason in answer
        assert state.workspace.read("f.py") == data
        assert use(state, "undo_edit") == "error: no edit to undo"


def test_an_edit_applies_within_the_lines_last_read() -> None:
    with state_of({"f.py": b"x\nx\nx\n"}) as state:
        assert use(state, "read_file", line="2|", path="f.py") == "2|x"
        assert use(state, "edit_file", old="x", new="y\nz") == "ok"
        assert state.workspace.read("f.py") == b"x\ny\nz\nx\n"
        # The focus has grown with the edit: both new lines are in it, their neighbours are not.
        assert use(state, "edit_file", old="z", new="w") == "ok"
        # A refused edit of few lines is answered with them.
        refused = use(state, "edit_file", old="x", new="w")
        assert refused == "error: old not found\n2|y\n3|w"


def test_a_refused_edit_of_many_lines_is_not_answered_with_them() -> None:
    with state_of({"f.py": b"\xef\xbb\xbfa\nb\nc\nd\n"}) as state:
        for lines, shown in ((None, ""), ("1|-4|", ""), ("2|-3|", "\n2|b\n3|c"), ("1|", "\n1|a")):
            arguments = {"line": lines} if lines else {}
            use(state, "read_file", path="f.py", **arguments)
            answer = use(state, "edit_file", old="x", new="w")
            assert answer == f"error: old not found{shown}"


def test_mode_and_links_survive_an_edit() -> None:
    with state_of({"f.py": b"x\n"}) as state:
        path = f"{state.workspace.path}/f.py"
        os.chmod(path, 0o755)
        os.symlink("f.py", f"{state.workspace.path}/link.py")
        assert use(state, "edit_file", old="x", new="y", path="link.py") == "ok"
        assert os.path.islink(f"{state.workspace.path}/link.py")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o755
        assert state.workspace.read("f.py") == b"y\n"


def test_undo_takes_edits_back_one_by_one_and_spares_later_changes() -> None:
    with state_of({"f.py": b"1"}) as state:
        for old, new in (("1", "2"), ("2", "3")):
            use(state, "edit_file", old=old, new=new, path="f.py")
        assert use(state, "undo_edit") == "ok" and state.workspace.read("f.py") == b"2"
        state.workspace.write("f.py", b"changed by a command")
        assert use(state, "undo_edit") == "error: f.py changed since the edit"
        assert state.workspace.read("f.py") == b"changed by a command"


def test_a_binary_file_is_neither_shown_nor_edited() -> None:
    with state_of({"f.bin": b"x\0y"}) as state:
        assert use(state, "read_file", path="f.bin") == "error: f.bin is binary"
        assert "binary" in use(state, "edit_file", old="x", new="z", path="f.bin")
