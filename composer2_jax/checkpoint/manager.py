"""Checkpoints: saved in the background, restored strictly, the last good one always kept.

A directory holds one folder a step, each with the weights, the rest of the training state and, for
pretraining, the position of the data iterator. Orbax writes into a temporary folder and renames it,
so a run killed in the middle of a save goes on from the one before.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import SingleDeviceSharding

from composer2_jax.core import trees
from composer2_jax.errors import UserError
from composer2_jax.model.transformer import Variables

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax logs every phase of every save

State = TypeVar("State", bound="StateLike")
SAVE_SECONDS = 600  # a save that takes longer has failed


class StateLike(Protocol):
    """A pytree with the weights under these two names."""

    params: Any
    router: Any


class CheckpointManager:
    """Checkpoints of one run. An error of a background save is raised by the next call here.

    `keep` newest steps stay, and for good those in `keep_steps`.
    """

    def __init__(self, directory: Path, *, keep: int = 2, keep_steps: tuple[int, ...] = ()):
        policies = ocp.checkpoint_managers
        self._manager = _open(
            directory,
            preservation_policy=policies.AnyPreservationPolicy(
                [policies.LatestN(keep), policies.CustomSteps(keep_steps)]
            ),
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(timeout_secs=SAVE_SECONDS),
        )

    def save(self, step: int, state: Any, position: dict[str, Any] | None = None) -> None:
        """Starts saving `state` as `step`; returns once the state may be changed.

        A step that is there already, as after a rerun of the last one, is left as it is.
        """
        if step in self._manager.all_steps():
            return
        weights, rest = _split(state)
        items = {
            "weights": ocp.args.StandardSave(_unflat(weights)),
            "rest": ocp.args.StandardSave(_unflat(rest)),
        }
        if position is not None:
            items["position"] = ocp.args.JsonSave(position)
        self._manager.save(step, args=ocp.args.Composite(**items))

    def restore_latest(self, state: State) -> State:
        """The newest checkpoint in the shape of `state`, or `state` itself when there is none.

        Arrays come back with the shardings that they have in `state`, whatever they were saved
        with. Raises UserError naming what does not fit.
        """
        step = self._manager.latest_step()
        if step is None:
            return state
        stored: dict[str, Any] = {}
        for name, wanted in zip(("weights", "rest"), _split(state), strict=True):
            target = _flat(jax.tree.map(ocp.utils.to_shape_dtype_struct, wanted))
            stored |= _restore(self._manager, step, name, target)
        names = [name for name, _ in trees.named_leaves(state)]
        return jax.tree.unflatten(jax.tree.structure(state), [stored[name] for name in names])

    def restore_position(self) -> dict[str, Any] | None:
        """The data position that was saved with the newest checkpoint."""
        step = self._manager.latest_step()
        if step is None:
            return None
        items = ocp.args.Composite(position=ocp.args.JsonRestore())
        return self._manager.restore(step, args=items)["position"]

    def latest_durable_step(self) -> int | None:
        """The newest step that is whole on disk; raises the error of a save that failed."""
        self._manager.check_for_errors()
        steps = sorted(self._manager.all_steps())
        whole = steps[:-1] if self._manager.is_saving_in_progress() else steps
        return max(whole, default=None)

    def wait(self) -> None:
        """Until the save under way is whole on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        self._manager.close()


def restore_weights(
    run: Path, step: int | None = None, target: Variables | None = None
) -> Variables:
    """Weights of a finished or running run: its newest checkpoint, or that of `step`.

    With a `target` (arrays, or shapes with shardings) the weights must fit it and are placed like
    it; without one they are plain arrays. Raises UserError when there is no such checkpoint.
    """
    directory = run.resolve() / "checkpoints"
    if not directory.is_dir():
        raise UserError(f"{run}: no checkpoints there; run the stage that makes them first")
    with _open(directory, read_only=True) as manager:
        found = manager.latest_step() if step is None else step
        if found is None or found not in manager.all_steps():
            have = sorted(manager.all_steps())
            raise UserError(f"{directory}: no checkpoint of step {found}; there are {have}")
        if target is not None:
            wanted = _flat(jax.tree.map(ocp.utils.to_shape_dtype_struct, target))
            return _unflat(_restore(manager, found, "weights", wanted))
        place = SingleDeviceSharding(jax.devices()[0])
        wanted = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
            for name, leaf in _stored(manager, found, "weights").items()
        }
        # Not committed to a device: joined with fresh arrays, committed ones compile a step twice.
        return jax.tree.map(
            lambda leaf: jnp.array(np.asarray(leaf)),
            _unflat(_restore(manager, found, "weights", wanted)),
        )


def check_fits(stored: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
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


def _open(directory: Path, **options: Any) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(
        directory.resolve(),
        options=ocp.CheckpointManagerOptions(**options),
        item_handlers={
            "weights": ocp.StandardCheckpointHandler(),
            "rest": ocp.StandardCheckpointHandler(),
            "position": ocp.JsonCheckpointHandler(),
        },
    )


def _split(state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What every reader wants, and what only a resumed run needs."""
    named = dict(trees.named_leaves(state))
    weights = {n: x for n, x in named.items() if n.partition("/")[0] in ("params", "router")}
    return weights, {name: leaf for name, leaf in named.items() if name not in weights}


def _restore(
    manager: ocp.CheckpointManager, step: int, item: str, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Leaves of one item by name, after a check that they are exactly those wanted."""
    check_fits(_stored(manager, step, item), wanted, f"{manager.directory}/{step}")
    restore = ocp.args.StandardRestore(_unflat(wanted))
    return _flat(manager.restore(step, args=ocp.args.Composite(**{item: restore}))[item])


def _stored(manager: ocp.CheckpointManager, step: int, item: str) -> dict[str, Any]:
    """Shapes and dtypes on disk."""
    metadata = manager.item_metadata(step)[item]
    if metadata is None:
        raise UserError(f"{manager.directory}/{step} holds no {item}: it is damaged or older")
    return _flat(metadata.tree)


def _described(leaves: dict[str, Any]) -> dict[str, str]:
    return {name: f"{tuple(x.shape)} {np.dtype(x.dtype)}" for name, x in leaves.items()}


def _unflat(leaves: dict[str, Any]) -> dict[str, Any]:
    return unflatten_dict(leaves, sep="/")


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    return flatten_dict(tree, sep="/")
