"""Checkpoints: what is kept, what comes back, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.checkpoint.manager import CheckpointManager, restore_weights
from composer2_jax.core.trees import digest
from composer2_jax.errors import UserError


class Moments(NamedTuple):
    first: Any
    empty: tuple[()]


class State(NamedTuple):
    step: Any
    params: Any
    router: Any
    opt_state: Any


def state_of(value: float, size: int = 4, dtype: Any = jnp.float32) -> State:
    """Everything holds `value`."""
    params = {"block": {"weight": jnp.full((size, 3), value, dtype), "scale": jnp.full(3, value)}}
    router = {"block": {"bias": jnp.full(2, value)}}
    moments = (Moments({"weight": jnp.full((size, 3), value)}, ()), None)
    return State(jnp.asarray(int(value)), params, router, moments)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[CheckpointManager]:
    manager = CheckpointManager(tmp_path / "checkpoints", keep_steps=(1,))
    yield manager
    manager.close()


def test_a_state_comes_back_bit_for_bit_with_its_position(manager: CheckpointManager) -> None:
    state = state_of(1.0)
    odd = np.array([-0.0, np.nan, np.inf], np.float32)
    state.params["block"]["scale"] = jnp.asarray(odd)
    manager.save(1, state, {"next": {"index": 17}})
    manager.wait()
    back = manager.restore_latest(state_of(0.0))
    assert digest(back) == digest(state)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert manager.restore_position() == {"next": {"index": 17}}


def test_without_a_checkpoint_the_given_state_is_kept(manager: CheckpointManager) -> None:
    state = state_of(3.0)
    assert manager.restore_latest(state) is state
    assert manager.restore_position() is None and manager.latest_durable_step() is None


def test_the_newest_two_and_the_named_steps_are_kept(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    for step in range(1, 6):
        manager.save(step, state_of(float(step)))
    manager.wait()
    assert manager.latest_durable_step() == 5
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert steps == ["1", "4", "5"]
    assert float(restore_weights(tmp_path, 1)["params"]["block"]["scale"][0]) == 1.0
    assert float(restore_weights(tmp_path)["params"]["block"]["scale"][0]) == 5.0


def test_a_state_may_be_given_away_while_it_is_saved(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    """The next step overwrites the state's memory while the save is still writing."""
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    state = step(state_of(0.0, size=50_000))
    for number in range(1, 4):
        manager.save(number, state)
        for _ in range(20):
            state = step(state)
        manager.wait()
        stored = restore_weights(tmp_path, number)["params"]["block"]["weight"]
        assert np.unique(stored).tolist() == [1.0 + 20 * (number - 1)]


def test_what_does_not_fit_is_named(manager: CheckpointManager, tmp_path: Path) -> None:
    """Another shape, another type, a leaf too many, a leaf too few: never a partial restore."""
    manager.save(1, state_of(1.0))
    manager.wait()
    with pytest.raises(UserError, match=r"params/block/weight is \(4, 3\).*wanted \(5, 3\)"):
        manager.restore_latest(state_of(0.0, size=5))
    with pytest.raises(UserError, match=r"weight is \(4, 3\) float32, wanted \(4, 3\) bfloat16"):
        manager.restore_latest(state_of(0.0, dtype=jnp.bfloat16))
    more, fewer = state_of(0.0), state_of(0.0)
    more.params["block"]["extra"] = jnp.zeros(1)
    with pytest.raises(UserError, match="params/block/extra is missing"):
        manager.restore_latest(more)
    del fewer.params["block"]["scale"]
    with pytest.raises(UserError, match=r"params/block/scale is \(3,\) float32, wanted nothing"):
        manager.restore_latest(fewer)
    target = {"params": fewer.params, "router": fewer.router}
    with pytest.raises(UserError, match="params/block/scale"):
        restore_weights(tmp_path, target=target)


def test_weights_are_read_without_the_rest_and_join_fresh_arrays(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    """Arrays that are tied to a device would compile every step a second time."""
    manager.save(1, state_of(2.0))
    manager.wait()
    weights = restore_weights(tmp_path)
    assert weights.keys() == {"params", "router"}
    assert not any(leaf.committed for leaf in jax.tree.leaves(weights))


def test_a_missing_run_or_step_is_one_clear_line(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no checkpoints there"):
        restore_weights(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no checkpoint of step None; there are"):
        restore_weights(tmp_path)
    manager.save(3, state_of(1.0))
    manager.wait()
    with pytest.raises(UserError, match=r"no checkpoint of step 2; there are \[3\]"):
        restore_weights(tmp_path, 2)
