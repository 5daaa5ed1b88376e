"""A finished group comes back from disk as it was, once."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from composer2_jax.rl.store import GroupStore
from composer2_jax.rl.trajectory import Group, Trajectory
from tests.rl.samples import group, trajectory


def test_groups_come_back_as_they_were(tmp_path: Path) -> None:
    groups = [group([1.0, None, 1 / 3], place, version=place + 5) for place in (7, 2, 4)]
    store = GroupStore(tmp_path / "groups.sqlite")
    for one in groups:
        store.add(one)
    store.close()
    again = GroupStore(tmp_path / "groups.sqlite")
    found = again.load(0)
    assert found == {one.place: one for one in groups}
    assert list(found) == [2, 4, 7]
    assert list(again.load(4)) == [4, 7]
    again.forget(4)
    assert list(again.load(0)) == [4, 7]
    again.close()


def test_json_keeps_every_bit_of_a_group() -> None:
    one = group([0.1, None], 3)
    back = Group.from_json(one.to_json())
    assert back == one and isinstance(back.members[0].tokens, tuple)
    assert [m.counted for m in back.members] == [True, False]


def test_a_second_group_for_a_place_is_refused(tmp_path: Path) -> None:
    store = GroupStore(tmp_path / "groups.sqlite")
    store.add(group([1.0], 3))
    with pytest.raises(sqlite3.IntegrityError):
        store.add(group([0.0], 3))
    assert store.load(0)[3].members[0].reward == 1.0
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from composer2_jax.rl.store import GroupStore
from composer2_jax.rl.trajectory import Group
store = GroupStore(Path(sys.argv[1]))
store.add(Group.from_json(sys.argv[2]))
store._db.execute("INSERT INTO groups VALUES (1, 'half')")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_whole_groups_only(tmp_path: Path) -> None:
    path = tmp_path / "groups.sqlite"
    command = [sys.executable, "-c", KILLED, str(path), group([1.0, 0.0], 0).to_json()]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    store = GroupStore(path)
    assert store.load(0) == {0: group([1.0, 0.0], 0)}
    store.close()


def test_a_trajectory_begins_with_a_prompt() -> None:
    """A first token that was sampled has nothing before it to be predicted from."""
    with pytest.raises(ValueError, match="begins with a sampled token"):
        trajectory(3, sampled=[1, 1, 1])


def test_a_trajectory_whose_lists_do_not_line_up_is_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        Trajectory((1, 2), (0, 1), (0.0,), (-1, 0), 0.0, {}, True, {})
