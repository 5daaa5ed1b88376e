"""The decoder as a function: packing, causality, padding, and variants that must not matter."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from composer2_jax.errors import UserError
from composer2_jax.model.config import ModelConfig, MoEConfig
from composer2_jax.model.transformer import Transformer
from composer2_jax.train.losses import LossConfig, make_loss
from tests.model import tiny

A, B = tiny.sequence(9, 3), tiny.sequence(7, 4)


def test_packed_equals_unpacked() -> None:
    """Positions that run on, or attention across the border, would change B's logits."""
    packed = tiny.forward(tiny.pack([[A, B], []]))
    alone = tiny.forward(tiny.pack([[A], [B]]))
    a, b = slice(0, len(A)), slice(len(A), len(A) + len(B))
    np.testing.assert_allclose(packed.logits[0, a], alone.logits[0, : len(A)], atol=1e-5)
    np.testing.assert_allclose(packed.logits[0, b], alone.logits[1, : len(B)], atol=1e-5)
    np.testing.assert_allclose(packed.mtp_logits[0, a], alone.mtp_logits[0, : len(A)], atol=1e-5)
    np.testing.assert_allclose(packed.mtp_logits[0, b], alone.mtp_logits[1, : len(B)], atol=1e-5)
    np.testing.assert_array_equal(packed.loads, alone.loads)


def test_a_change_in_one_segment_leaves_the_other_bit_identical() -> None:
    base = tiny.forward(tiny.pack([[A, B], []]))
    changed = tiny.forward(tiny.pack([[tiny.sequence(9, 5), B], []]))
    b = slice(len(A), len(A) + len(B))
    assert not np.array_equal(base.logits[0, : len(A)], changed.logits[0, : len(A)])
    np.testing.assert_array_equal(base.logits[0, b], changed.logits[0, b])
    np.testing.assert_array_equal(base.mtp_logits[0, b], changed.mtp_logits[0, b])


def test_a_later_token_does_not_reach_an_earlier_logit() -> None:
    base = tiny.forward(tiny.pack([[A], [B]]))
    changed = tiny.forward(tiny.pack([[[*A[:-1], (A[-1] + 1) % tiny.VOCAB]], [B]]))
    end = len(A) - 1
    np.testing.assert_array_equal(base.logits[0, :end], changed.logits[0, :end])
    # The draft layer at t has seen token t + 1, so its last unchanged place is one earlier.
    np.testing.assert_array_equal(base.mtp_logits[0, : end - 1], changed.mtp_logits[0, : end - 1])
    assert not np.array_equal(base.mtp_logits[0, end - 1], changed.mtp_logits[0, end - 1])


def test_what_stands_in_the_padding_does_not_matter() -> None:
    batch = tiny.pack([[A], [B]])
    dirty = {**batch, "tokens": np.where(batch["segment_ids"] == 0, 7, batch["tokens"])}
    base, changed = tiny.forward(batch), tiny.forward(dirty)
    for row, segment in enumerate((A, B)):
        np.testing.assert_array_equal(
            base.logits[row, : len(segment)], changed.logits[row, : len(segment)]
        )
    # Pads take no part in the loads: 16 tokens, two experts each.
    assert base.loads.sum() == 2 * (len(A) + len(B))
    np.testing.assert_array_equal(base.loads, changed.loads)


def test_replaying_the_models_own_routes_changes_nothing_and_other_routes_do() -> None:
    batch = tiny.pack([[A], [B]])
    own = tiny.forward(batch)
    model = Transformer(tiny.CONFIG)
    inputs = [batch[name] for name in ("tokens", "segment_ids", "positions")]
    replayed = jax.jit(lambda routes: model.apply(tiny.variables(), *inputs, replay=routes))
    np.testing.assert_allclose(replayed(own.experts).logits, own.logits, atol=1e-6)
    other = replayed((own.experts + 1) % 4)
    assert np.abs(np.asarray(other.logits) - own.logits).max() > 1e-3
    np.testing.assert_array_equal(other.experts, (own.experts + 1) % 4)


# Two at a time: it is the compilation that takes long.
VARIANTS: dict[str, dict[str, Any]] = {
    "unrolled, with blocks of queries": {"scan_unroll": 2, "query_blocks": 4},
    "rematerialised, with ragged experts": {
        "remat": True,
        "moe": dataclasses.replace(tiny.DEEP.moe, implementation="ragged"),
    },
}


def loss_and_gradients(config: ModelConfig) -> tuple[float, Any]:
    loss_fn = make_loss(config, LossConfig(mtp=0.3))
    batch = tiny.pack([[A, B], [tiny.sequence(11, 6)]])

    @jax.jit
    @jax.value_and_grad
    def total(params: Any) -> jax.Array:
        router = tiny.variables(tiny.DEEP)["router"]
        return loss_fn({"params": params, "router": router}, batch)[0].total

    return total(tiny.variables(tiny.DEEP)["params"])


def test_variants_change_the_speed_only() -> None:
    """Same loss and same gradients as the scanned model with whole attention and dense experts."""
    base_loss, base = loss_and_gradients(tiny.DEEP)
    for name, change in VARIANTS.items():
        loss, gradients = loss_and_gradients(dataclasses.replace(tiny.DEEP, **change))
        np.testing.assert_allclose(loss, base_loss, rtol=1e-5, err_msg=name)
        for ours, wanted in zip(jax.tree.leaves(gradients), jax.tree.leaves(base), strict=True):
            tolerance = 2e-5 * np.abs(wanted).max() + 1e-6
            np.testing.assert_allclose(ours, wanted, atol=tolerance, err_msg=name)


def test_bad_architectures_are_named() -> None:
    with pytest.raises(UserError, match="first_dense_layers"):
        ModelConfig(num_layers=1, first_dense_layers=2)
    with pytest.raises(UserError, match="experts_per_token"):
        ModelConfig(moe=MoEConfig(num_experts=8, experts_per_token=5, num_groups=4))
    with pytest.raises(UserError, match="implementation"):
        ModelConfig(moe=MoEConfig(implementation="magic"))
