"""Faults of multi-token prediction that other trainers had: a label shifted twice, a head that gets
gradients from the draft loss, targets that cross a packed border, a loss that is not averaged.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from composer2_jax.core.trees import named_leaves
from composer2_jax.model.transformer import Output
from composer2_jax.train.losses import LossConfig, draft_mask, make_loss, mtp_distillation_loss
from composer2_jax.train.measure import measure
from tests.model import tiny

PERIODIC = [0, 1, 2] * 5  # the head of the first test knows it: after t comes t + 1 mod 3


def oracle(batch: tiny.Batch, shift: int) -> Output:
    """A main head that is sure of the next token, and a draft of the token `shift` + 1 ahead."""
    tokens = batch["tokens"]

    def sure_of(token: np.ndarray) -> np.ndarray:
        return (8.0 * np.eye(tiny.VOCAB)[token % 3]).astype(np.float32)

    nothing: Any = None
    return Output(sure_of(tokens + 1), *[nothing] * 3, sure_of(tokens + 1 + shift), nothing)


def test_a_draft_that_foresees_the_main_head_has_no_loss() -> None:
    """At t the draft must equal the main head at t + 1. Shifted twice it would be wrong by a step:
    about 8 nats on this sequence, where the right answer is 0."""
    batch = tiny.pack([[PERIODIC]])
    right = mtp_distillation_loss(oracle(batch, shift=1), batch)
    assert float(right.weight) == len(PERIODIC) - 2
    assert float(right.mean()) == pytest.approx(0.0, abs=1e-6)
    for wrong in (0, 2):
        assert float(mtp_distillation_loss(oracle(batch, wrong), batch).mean()) > 7.0


def test_cross_entropy_with_the_oracle_is_the_main_heads_entropy() -> None:
    """The loss is a divergence: cross entropy minus the entropy at the matching position."""
    batch = tiny.pack([[PERIODIC]])
    logits = np.random.default_rng(0).normal(size=(2, 1, tiny.LENGTH, tiny.VOCAB)) * 2.0
    main, draft = (jax.nn.log_softmax(x.astype(np.float32)) for x in logits)
    nothing: Any = None
    output = Output(main, *[nothing] * 3, draft, nothing)
    places = range(len(PERIODIC) - 2)
    p, q = np.asarray(main[0], np.float64), np.asarray(draft[0], np.float64)
    crossed = sum(-(np.exp(p[t + 1]) * q[t]).sum() for t in places)
    entropy = sum(-(np.exp(p[t + 1]) * p[t + 1]).sum() for t in places)
    loss = mtp_distillation_loss(output, batch)
    assert float(loss.total) == pytest.approx(crossed - entropy, rel=1e-4)


def test_no_draft_reaches_over_a_border() -> None:
    """Rows of 4 and 3 tokens: drafts at 0, 1 guess 2, 3 and the draft at 4 guesses 6. The draft at
    2 would guess the other document's first token, the one at 3 its second."""
    batch = tiny.pack([[[4, 7, 9, 2], [5, 6, 1]]])
    batch["loss_mask"][:] = 1
    assert np.flatnonzero(draft_mask(batch)[0]).tolist() == [0, 1, 4]
    batch["loss_mask"][0, 3] = 0  # not trained, so not drafted either
    assert np.flatnonzero(draft_mask(batch)[0]).tolist() == [0, 4]


UNTIED_JOINT = dataclasses.replace(tiny.CONFIG, mtp_detach_trunk=False)


@functools.cache
def gradients(detach: bool) -> dict[str, float]:
    """The largest gradient of the draft loss alone, by parameter."""
    config = tiny.CONFIG if detach else UNTIED_JOINT
    loss_fn = make_loss(config, LossConfig(next_token=0.0, mtp=1.0))
    batch = tiny.pack([[tiny.sequence(9, 1), tiny.sequence(8, 2)]])
    weights = tiny.variables()

    @jax.jit
    @jax.grad
    def slope(params: Any) -> jax.Array:
        return loss_fn({**weights, "params": params}, batch)[0].total

    return {n: float(np.abs(g).max()) for n, g in named_leaves(slope(weights["params"]))}


def test_the_draft_loss_never_reaches_the_main_head() -> None:
    """Exactly 0, detached or not: the head is the teacher and the draft's read-out at once."""
    for detach in (True, False):
        assert gradients(detach)["embedding/lm_head"] == 0.0


def test_a_detached_trunk_gets_nothing_and_a_joint_one_something() -> None:
    for name, size in gradients(True).items():
        assert (size > 0) == name.startswith("mtp/"), name
    joint = gradients(False)
    assert joint["final_norm_scale"] > 0 and joint["embedding/embedding"] > 0


def test_the_weight_is_the_number_of_drafts() -> None:
    """A loss that is summed and not averaged explodes with the batch."""
    one, two = (tiny.pack([[tiny.sequence(9, 1)], rest]) for rest in ([], [tiny.sequence(9, 1)]))
    single, double = (mtp_distillation_loss(tiny.forward(batch), batch) for batch in (one, two))
    assert float(double.weight) == 2 * float(single.weight) == 14
    assert float(double.mean()) == pytest.approx(float(single.mean()), rel=1e-5)


def test_packed_drafts_equal_drafts_alone() -> None:
    a, b = tiny.sequence(9, 1), tiny.sequence(8, 2)
    packed, alone = tiny.pack([[a, b], []]), tiny.pack([[a], [b]])
    losses = [mtp_distillation_loss(tiny.forward(batch), batch) for batch in (packed, alone)]
    assert float(losses[0].weight) == float(losses[1].weight) == 13
    assert float(losses[0].total) == pytest.approx(float(losses[1].total), rel=1e-5)


def test_acceptance_is_the_overlap_of_both_distributions() -> None:
    """Against numpy; and a run of agreements ends where the next draft disagrees."""
    batch = tiny.pack([[tiny.sequence(9, 1), tiny.sequence(8, 2)], [tiny.sequence(20, 3)]])
    output = tiny.forward(batch)
    main = np.asarray(jax.nn.softmax(output.logits))
    draft = np.asarray(jax.nn.softmax(output.mtp_logits))
    kept, agreed, runs, drafts = 0.0, 0, 0, 0
    for row, place in np.argwhere(np.asarray(draft_mask(batch)) > 0):
        kept += np.minimum(main[row, place + 1], draft[row, place]).sum()
        agrees = [
            output.logits[row, t + 1].argmax() == output.mtp_logits[row, t].argmax()
            and draft_mask(batch)[row, t] > 0
            for t in (place, place + 1)
        ]
        drafts, agreed, runs = drafts + 1, agreed + agrees[0], runs + (agrees[0] and not agrees[1])
    measured = measure(tiny.CONFIG, tiny.variables(), [batch], drafts=True)
    assert measured.acceptance == pytest.approx(kept / drafts, rel=1e-5)
    assert measured.greedy_agreement == pytest.approx(agreed / drafts)
    assert measured.accepted_run == pytest.approx(agreed / max(runs, 1))
