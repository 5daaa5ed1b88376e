"""Small operations on parameter trees."""

from __future__ import annotations

import jax
import numpy as np

from composer2_jax.core import trees

TREE = {
    "embedding": {"table": np.ones((3, 2), np.float32)},
    "mtp": {"norm": np.zeros(2, np.float32)},
    "mtp_like": np.float32(4.0),
}


def test_a_partition_is_undone_by_merge() -> None:
    mask = trees.mask_by_path(TREE, lambda path: trees.under(path, ("mtp",)))
    chosen, rest = trees.partition(TREE, mask)
    assert [name for name, _ in trees.named_leaves(chosen)] == ["mtp/norm"]
    assert len(jax.tree.leaves(rest)) == 2
    assert trees.digest(trees.merge(chosen, rest)) == trees.digest(TREE)


def test_a_prefix_ends_at_a_slash() -> None:
    """ "mtp" must not take "mtp_like" along."""
    assert trees.under("mtp/norm", ("mtp",)) and trees.under("mtp", ("mtp",))
    assert not trees.under("mtp_like", ("mtp",))
    assert trees.under("anything", ())


def test_a_digest_sees_values_shapes_types_and_names() -> None:
    base = trees.digest(TREE)
    flipped = {**TREE, "mtp_like": np.float32(-4.0)}
    renamed = {**{k: v for k, v in TREE.items() if k != "mtp_like"}, "other": np.float32(4.0)}
    retyped = {**TREE, "mtp": {"norm": np.zeros(2, np.int32)}}
    reshaped = {**TREE, "mtp": {"norm": np.zeros((1, 2), np.float32)}}
    digests = [trees.digest(tree) for tree in (flipped, renamed, retyped, reshaped)]
    assert len({base, *digests}) == 5
    assert trees.digest({"a": np.float32(0.0)}) != trees.digest({"a": np.float32(-0.0)})
