"""Small files appear whole or not at all."""

import errno
import os

import pytest

from composer2_jax import files
from composer2_jax.errors import UserError


def test_write_atomic_keeps_the_old_file_when_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "value.json"
    files.write_atomic(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["value.json"]


def test_a_damaged_json_file_is_named(tmp_path):
    (tmp_path / "wall.json").write_text("{")
    with pytest.raises(UserError, match=r"wall\.json is not valid JSON"):
        files.read_json(tmp_path / "wall.json")
    assert files.read_json(tmp_path / "absent.json") == {}
