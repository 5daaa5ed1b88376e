"""The only file that names mesh axes.

Weights and activations speak of *logical* axes (embed, heads, experts, ...); the table below says
which mesh axis each is cut along. Meshes of one device make every rule a no-op, so the laptop and
the pod run the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

MESH_AXES = ("data", "fsdp", "expert", "context", "tensor")

LOGICAL_TO_MESH: dict[str, Any] = {
    "batch": ("data", "fsdp"),
    "sequence": "context",
    "layers": None,
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "mlp": "tensor",
    "experts": "expert",
    "latent": None,
    "head": None,
}


def make_mesh(
    shape: dict[str, int] | None = None, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A mesh with all five axes; unnamed ones have size 1, and `fsdp` takes what is left.

    Axis types are Auto: this code annotates inputs and weights and leaves the rest to the
    compiler's propagation, as collectives are written by hand only inside shard_map.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = {axis: (shape or {}).get(axis, 1) for axis in MESH_AXES}
    unknown = set(shape or {}) - set(MESH_AXES)
    if unknown:
        raise ValueError(f"unknown mesh axes {sorted(unknown)}; known: {MESH_AXES}")
    named = int(np.prod([sizes[axis] for axis in MESH_AXES if axis != "fsdp"]))
    if len(devices) % named:
        raise ValueError(f"{len(devices)} devices do not divide by the named axes {shape}")
    if "fsdp" not in (shape or {}):
        sizes["fsdp"] = len(devices) // named
    if named * sizes["fsdp"] != len(devices):
        raise ValueError(f"mesh {sizes} does not hold {len(devices)} devices")
    grid = np.asarray(devices).reshape([sizes[axis] for axis in MESH_AXES])
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def weight_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Shardings for a tree of logically partitioned weights (as `init` returns them, boxed)."""
    specs = nn.get_partition_spec(boxed)
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, _mesh_spec(spec)),
        specs,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of a [B, T] batch: rows over data and fsdp, tokens over context."""
    return NamedSharding(mesh, PartitionSpec(LOGICAL_TO_MESH["batch"], LOGICAL_TO_MESH["sequence"]))


def _mesh_spec(spec: PartitionSpec) -> PartitionSpec:
    return PartitionSpec(*(LOGICAL_TO_MESH[axis] if axis else None for axis in spec))
