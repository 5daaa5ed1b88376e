"""Versions only rise, a late reader gets the newest, and what is published stays as it was."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.weights.sync import InProcessWeights


def test_a_reader_gets_the_newest_and_each_version_once() -> None:
    weights = InProcessWeights()
    assert weights.newer_than(-1) is None
    for version in (0, 3, 4):
        weights.publish(version, {"w": jnp.full(2, version)})
    newest = weights.newer_than(0)
    assert newest is not None and newest.version == 4 and newest.variables["w"].tolist() == [4, 4]
    assert weights.newer_than(4) is None
    assert weights.newer_than(9) is None


@pytest.mark.parametrize("version", [2, 1, -1])
def test_an_old_version_is_refused_and_the_newer_one_stays(version: int) -> None:
    weights = InProcessWeights()
    weights.publish(2, {"w": jnp.zeros(1)})
    with pytest.raises(ValueError, match=f"weights {version} after 2"):
        weights.publish(version, {"w": jnp.ones(1)})
    newest = weights.newer_than(-1)
    assert newest is not None and newest.version == 2 and newest.variables["w"].tolist() == [0]


def test_published_weights_outlive_the_trainers_buffers() -> None:
    """The trainer's next step reuses the memory of the weights it started from."""
    weights = InProcessWeights()
    mine = jnp.arange(1024.0)
    weights.publish(0, {"w": mine})
    step = jax.jit(lambda w: w + 1, donate_argnums=0)
    step(mine).block_until_ready()
    mine.delete()
    newest = weights.newer_than(-1)
    assert newest is not None
    np.testing.assert_array_equal(newest.variables["w"], np.arange(1024.0))


def test_readers_in_other_threads_never_see_versions_go_back() -> None:
    weights, wrong = InProcessWeights(), list[tuple[int, int]]()
    last = 40

    def read() -> None:
        seen = -1
        while seen < last:
            newest = weights.newer_than(seen)
            if newest is None:
                continue
            if newest.version <= seen or int(newest.variables["w"][0]) != newest.version:
                wrong.append((seen, newest.version))
            seen = newest.version

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(last + 1):
        weights.publish(version, {"w": jnp.full(1, version)})
    for reader in readers:
        reader.join(timeout=30)
        assert not reader.is_alive()
    assert not wrong
