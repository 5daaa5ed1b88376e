"""A model small enough to compile in seconds, and batches for it. Programs are compiled once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from composer2_jax.model.config import MLAConfig, ModelConfig, MoEConfig
from composer2_jax.model.transformer import Output, Transformer, Variables, init_variables

LENGTH = 24
VOCAB = 48
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    embed_dim=32,
    num_layers=2,
    first_dense_layers=1,
    dense_dim=48,
    num_heads=2,
    mla=MLAConfig(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8),
    moe=MoEConfig(num_experts=4, experts_per_token=2, expert_dim=16),
    num_mtp_layers=1,
    prev_token_mixing=True,
    max_length=64,
)
DEEP = dataclasses.replace(CONFIG, num_layers=3)

Batch = dict[str, np.ndarray]


@functools.cache
def variables(config: ModelConfig = CONFIG) -> Variables:
    """Random weights, with selection biases that are not zero."""
    fresh = init_variables(config, jax.random.key(1))
    router = jax.tree.map(
        lambda bias: 0.05 * jax.random.normal(jax.random.key(2), bias.shape), fresh["router"]
    )
    return {"params": fresh["params"], "router": router}


@functools.cache
def _applied(config: ModelConfig) -> Any:
    model = Transformer(config)
    return jax.jit(
        lambda weights, tokens, segment_ids, positions: model.apply(
            weights, tokens, segment_ids, positions, mtp=True
        )
    )


def forward(batch: Batch, config: ModelConfig = CONFIG, weights: Variables | None = None) -> Output:
    """The model's output with its draft layer, as numpy arrays."""
    inputs = (batch[name] for name in ("tokens", "segment_ids", "positions"))
    out = _applied(config)(variables(config) if weights is None else weights, *inputs)
    return jax.tree.map(np.asarray, out)


def pack(rows: Sequence[Sequence[Sequence[int]]], length: int = LENGTH) -> Batch:
    """Rows of segments -> a batch; every token but a segment's first is a target."""
    names = ("tokens", "segment_ids", "positions", "loss_mask")
    batch = {name: np.zeros((len(rows), length), np.int32) for name in names}
    for row, segments in enumerate(rows):
        start = 0
        for number, segment in enumerate(segments, 1):
            span = slice(start, start + len(segment))
            batch["tokens"][row, span] = segment
            batch["segment_ids"][row, span] = number
            batch["positions"][row, span] = np.arange(len(segment))
            batch["loss_mask"][row, span] = np.arange(len(segment)) > 0
            start = span.stop
        assert start <= length
    return batch


def sequence(length: int, seed: int) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(seed).integers(1, VOCAB, length).tolist()
