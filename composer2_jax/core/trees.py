"""Small operations on parameter trees: names, digests, selection by path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

Tree = Any


def named_leaves(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Yields ("a/b/c", leaf) in the tree's own order."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path, simple=True, separator="/"), leaf


def digest(tree: Tree) -> str:
    """SHA-256 over names, shapes, dtypes and bytes: equal digests mean bit-equal trees."""
    sha = hashlib.sha256()
    for name, leaf in named_leaves(tree):
        array = np.asarray(leaf)
        sha.update(f"{name}:{array.shape}:{array.dtype}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def mask_by_path(tree: Tree, predicate: Callable[[str], bool]) -> Tree:
    """A tree of bools: `predicate` of each leaf's path."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: predicate(jax.tree_util.keystr(path, simple=True, separator="/")), tree
    )


def under(path: str, prefixes: Sequence[str]) -> bool:
    """Whether `path` is one of `prefixes` or lies below one; no prefixes means everywhere."""
    return not prefixes or any(path == p or path.startswith(p + "/") for p in prefixes)


def partition(tree: Tree, mask: Tree) -> tuple[Tree, Tree]:
    """Two trees of the same structure: leaves where `mask` is true, and the others; else None."""
    chosen = jax.tree.map(lambda leaf, keep: leaf if keep else None, tree, mask)
    rest = jax.tree.map(lambda leaf, keep: None if keep else leaf, tree, mask)
    return chosen, rest


def merge(first: Tree, second: Tree) -> Tree:
    """Undoes `partition`."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, first, second, is_leaf=lambda node: node is None
    )
