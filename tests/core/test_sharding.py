"""Meshes and the table from logical to mesh axes."""

from __future__ import annotations

import jax
import pytest
from jax.sharding import PartitionSpec

from composer2_jax.core import sharding
from composer2_jax.core.trees import named_leaves
from composer2_jax.model.transformer import init_boxed
from tests.model import tiny


def test_a_mesh_names_every_axis_and_fsdp_takes_the_rest() -> None:
    mesh = sharding.make_mesh()
    assert mesh.axis_names == sharding.MESH_AXES
    assert mesh.shape["fsdp"] == len(jax.devices())


def test_impossible_meshes_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="tensr"):
        sharding.make_mesh({"tensr": 1})
    with pytest.raises(ValueError, match="do not divide"):
        sharding.make_mesh({"expert": len(jax.devices()) + 1})


def test_every_weight_is_cut_along_axes_of_the_table() -> None:
    """A weight whose logical axes are misspelt would be found here, not on a pod."""
    boxed = jax.eval_shape(lambda key: init_boxed(tiny.CONFIG, key), jax.random.key(0))
    mesh = sharding.make_mesh()
    specs = {name: s.spec for name, s in named_leaves(sharding.weight_shardings(boxed, mesh))}
    assert specs["params/embedding/embedding"] == PartitionSpec("tensor", "fsdp")
    experts = [spec for name, spec in specs.items() if name.endswith("experts_gate")]
    assert experts and all("expert" in spec for spec in experts)
    used = {axis for spec in specs.values() for axis in spec if axis}
    assert used <= set(sharding.MESH_AXES)
