"""Next-token losses against numpy, and what may be a target."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from composer2_jax.errors import UserError
from composer2_jax.model.config import ModelConfig
from composer2_jax.train.losses import (
    LossConfig,
    make_loss,
    next_token_loss,
    target_mask,
    z_loss,
)
from tests.model import tiny


def random_logits(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, tiny.LENGTH, tiny.VOCAB)).astype(np.float32)


def test_the_loss_is_the_cross_entropy_of_the_next_token() -> None:
    segments = [[4, 7, 9, 2], [5, 6, 1]]
    batch, logits = tiny.pack([segments]), random_logits(1)
    batch["loss_mask"][0, 2] = 0  # the token 9 is not trained
    total, count = 0.0, 0
    for start, segment in ((0, segments[0]), (4, segments[1])):
        for place in range(1, len(segment)):
            if start + place == 2:
                continue
            row = logits[0, start + place - 1].astype(np.float64)
            total += np.log(np.exp(row).sum()) - row[segment[place]]
            count += 1
    loss = next_token_loss(logits, batch)
    assert float(loss.weight) == count == 4
    assert float(loss.total) == pytest.approx(total, rel=1e-5)


def test_a_segments_first_token_is_no_target_whatever_the_mask_says() -> None:
    """It would be predicted from another document."""
    batch = tiny.pack([[[4, 7, 9], [5, 6]]])
    batch["loss_mask"][:] = 1
    wanted = np.zeros(tiny.LENGTH - 1)
    wanted[[0, 1, 3]] = 1  # 7, 9 and 6; not 5, and no pad
    np.testing.assert_array_equal(target_mask(batch)[0], wanted)


def test_no_target_at_all_gives_zero_loss_and_zero_gradients() -> None:
    """Every rollout or document masked: 0 / 0 must not become NaN."""
    batch = tiny.pack([[[4, 7, 9]]])
    batch["loss_mask"][:] = 0
    logits = random_logits(1)
    loss = next_token_loss(logits, batch)
    assert float(loss.weight) == float(loss.total) == float(loss.mean()) == 0.0
    slope = jax.grad(lambda x: next_token_loss(x, batch).mean())(logits)
    assert not np.asarray(slope).any()


def test_the_z_loss_is_the_squared_log_normaliser() -> None:
    batch, logits = tiny.pack([[[4, 7, 9]]]), random_logits(1)
    wanted = sum(np.log(np.exp(logits[0, place]).sum()) ** 2 for place in (0, 1))
    assert float(z_loss(logits, batch).total) == pytest.approx(wanted, rel=1e-5)


def test_a_loss_without_terms_or_without_its_layer_is_refused() -> None:
    with pytest.raises(UserError, match="nothing is trained"):
        LossConfig(next_token=0.0)
    with pytest.raises(UserError, match="num_mtp_layers"):
        make_loss(ModelConfig(), LossConfig(mtp=0.3))
