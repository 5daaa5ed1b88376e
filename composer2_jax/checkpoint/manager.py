"""Checkpoints: saved in the background, restored strictly, the last good one always kept.

A directory holds one folder a step, each with the state and, for pretraining, the position of the
data iterator. Orbax writes into a temporary folder and renames it, so a run killed in the middle of
a save goes on from the one before.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from composer2_jax.core import trees
from composer2_jax.errors import UserError
from composer2_jax.model.transformer import Variables

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax logs every phase of every save

State = TypeVar("State", bound="StateLike")


class StateLike(Protocol):
    """A pytree with the weights under these two names."""

    params: Any
    router: Any


class CheckpointManager:
    """Checkpoints of one run. An error of a background save is raised by the next call here.

    `keep` newest steps stay, and for good those in `keep_steps`.
    """

    def __init__(self, directory: Path, *, keep: int = 2, keep_steps: tuple[int, ...] = ()):
        self._manager = ocp.CheckpointManager(
            directory.resolve(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=ocp.checkpoint_managers.AnyPreservationPolicy(
                    [
                        ocp.checkpoint_managers.LatestN(keep),
                        ocp.checkpoint_managers.CustomSteps(keep_steps),
                    ]
                ),
                cleanup_tmp_directories=True,
            ),
        )

    def save(self, step: int, state: Any, position: dict[str, Any] | None = None) -> None:
        """Starts saving `state` as `step`; returns once the state may be changed."""
        items = {"state": ocp.args.StandardSave(state)}
        if position is not None:
            items["position"] = ocp.args.JsonSave(position)
        self._manager.save(step, args=ocp.args.Composite(**items))

    def restore_latest(self, state: State) -> State:
        """The newest checkpoint in the shape of `state`, or `state` itself when there is none."""
        step = self._manager.latest_step()
        return state if step is None else _restore(self._manager, step, state)

    def restore_position(self) -> dict[str, Any] | None:
        """The data position that was saved with the newest checkpoint."""
        step = self._manager.latest_step()
        if step is None:
            return None
        items = ocp.args.Composite(position=ocp.args.JsonRestore())
        return self._manager.restore(step, args=items)["position"]

    def latest_durable_step(self) -> int | None:
        """The newest step that is whole on disk."""
        steps = sorted(self._manager.all_steps())
        whole = steps[:-1] if self._manager.is_saving_in_progress() else steps
        return max(whole, default=None)

    def wait(self) -> None:
        """Until the save under way is whole on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()


def restore_weights(run: Path, step: int | None = None) -> Variables:
    """Weights of a finished or running run: its newest checkpoint, or that of `step`.

    Raises UserError when there is none.
    """
    directory = run / "checkpoints"
    if not directory.is_dir():
        raise UserError(f"{run}: no checkpoints there; run the stage that makes them first")
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(directory.resolve(), options=options) as manager:
        found = manager.latest_step() if step is None else step
        if found is None or found not in manager.all_steps():
            have = list(manager.all_steps())
            raise UserError(f"{directory}: no checkpoint of step {found}; there are {have}")
        items = ocp.args.Composite(state=ocp.args.StandardRestore())
        tree = manager.restore(found, args=items)["state"]
    return {"params": tree["params"], "router": tree["router"]}


def check_fits(stored: Any, wanted: Any, where: str) -> None:
    """Raises UserError naming the leaves whose path, shape or dtype differ."""
    have, want = _described(stored), _described(wanted)
    wrong = [
        f"{name} is {have.get(name, 'missing')}, wanted {want.get(name, 'nothing')}"
        for name in sorted(have.keys() | want.keys())
        if have.get(name) != want.get(name)
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(f"{where} does not fit this run: {'; '.join(wrong[:3])}{more}")


def _described(tree: Any) -> dict[str, str]:
    return {name: f"{tuple(x.shape)} {np.dtype(x.dtype)}" for name, x in trees.named_leaves(tree)}


def _restore(manager: ocp.CheckpointManager, step: int, state: State) -> State:
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
    stored = manager.item_metadata(step)["state"].tree
    check_fits(stored, ocp.utils.serialize_tree(abstract, keep_empty_nodes=True), f"{manager.directory}/{step}")
    items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
    return manager.restore(step, args=items)["state"]
