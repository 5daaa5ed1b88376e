"""Faults of checkpoints that other trainers had: a kill in the middle of a save, an error of a
background save that nobody sees, a restore on another number of devices.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.checkpoint import manager as manager_module
from composer2_jax.checkpoint.manager import CheckpointManager, restore_weights
from tests.checkpoint.test_manager import state_of

ROOT = Path(__file__).parents[2]

SAVING = """
import sys
from pathlib import Path
from composer2_jax.checkpoint.manager import CheckpointManager
from tests.checkpoint.test_manager import state_of

manager = CheckpointManager(Path(sys.argv[1]) / "checkpoints")
for step in range(1, 10_000):
    manager.save(step, state_of(float(step), size=200_000), {"step": step})
    print(step, flush=True)
"""


def test_a_kill_in_the_middle_of_a_save_leaves_the_one_before(tmp_path: Path) -> None:
    """Saves follow one another without a pause, so `kill -9` meets one under way."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAVING, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 4:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    manager = CheckpointManager(tmp_path / "checkpoints")
    state = manager.restore_latest(state_of(0.0, size=200_000))
    step = int(state.step)
    assert step >= 2
    assert manager.restore_position() == {"step": step}
    for leaf in jax.tree.leaves(state):
        assert np.unique(leaf).tolist() == [step]  # all of one save
    # What the killed save left behind is swept away, and saving goes on.
    manager.save(step + 1, state_of(step + 1.0, size=200_000))
    manager.close()
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert str(step + 1) in names and not any("tmp" in name for name in names)


def test_an_error_of_a_background_save_is_raised_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up must not be noticed only when the checkpoint is needed."""
    manager = CheckpointManager(tmp_path / "checkpoints")
    manager.save(1, state_of(1.0))
    manager.wait()
    handler = manager_module.ocp.StandardCheckpointHandler

    def full(self: Any, *args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handler, "finalize", full)
    manager.save(2, state_of(2.0))
    with pytest.raises(OSError, match="No space left"):
        manager.wait()
    monkeypatch.undo()
    assert float(restore_weights(tmp_path)["params"]["block"]["scale"][0]) == 1.0


ON_FOUR_DEVICES = """
import sys
from pathlib import Path
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from composer2_jax.checkpoint.manager import CheckpointManager
from tests.checkpoint.test_manager import state_of

assert len(jax.devices()) == 4
mesh = Mesh(jax.devices(), ("fsdp",))
state = state_of(7.0)
cut = NamedSharding(mesh, PartitionSpec("fsdp"))
state.params["block"]["weight"] = jax.device_put(state.params["block"]["weight"], cut)
manager = CheckpointManager(Path(sys.argv[1]) / "checkpoints")
manager.save(1, state)
manager.close()
"""


def test_what_four_devices_saved_is_restored_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    command = [sys.executable, "-c", ON_FOUR_DEVICES, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    assert jax.device_count() == 1
    manager = CheckpointManager(tmp_path / "checkpoints")
    states = [manager.restore_latest(state_of(0.0)).params, restore_weights(tmp_path)["params"]]
    manager.close()
    for params in states:
        assert jnp.unique(params["block"]["weight"]).tolist() == [7.0]
