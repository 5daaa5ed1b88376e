"""Small pretraining runs on made-up token files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from composer2_jax.data.store import write_tokens
from composer2_jax.model.transformer import Variables
from composer2_jax.optim.adamw import OptimizerConfig
from composer2_jax.train.loop import DataConfig, PretrainConfig, pretrain
from composer2_jax.train.losses import LossConfig
from tests.model import tiny

MODEL = dataclasses.replace(tiny.CONFIG, tie_embeddings=True)
OPTIMIZER = OptimizerConfig(learning_rate=1e-2, warmup_steps=2)
DATA = DataConfig(mixture="pretrain", rows=4, length=tiny.LENGTH)


def write_data(root: Path) -> Path:
    """Periodic documents, so that a few steps already learn something; returns `root`/data."""
    data = root / "data"
    random = np.random.default_rng(0)
    for split, count in (("train", 200), ("heldout", 12)):
        documents = []
        for _ in range(count):
            cycle = random.integers(1, tiny.VOCAB, 3)
            ids = np.tile(cycle, 6)[: random.integers(8, 18)]
            documents.append((ids, np.ones(len(ids), int)))
        write_tokens(data / "tokens", "cycles", split, documents, vocab_size=tiny.VOCAB)
    (data / "mixtures.json").write_text(json.dumps({"pretrain": {"cycles": 1.0}}))
    return data


def run(workdir: Path, steps: int = 6, **settings: Any) -> dict[str, Any]:
    """`pretrain` with small defaults; PretrainConfig's fields may be given by name."""
    names = {field.name for field in dataclasses.fields(PretrainConfig)}
    config = {"save_every": 2, "log_every": 1} | {k: settings.pop(k) for k in names & set(settings)}
    defaults = {"model": MODEL, "optimizer": OPTIMIZER, "data": DATA, "loss": LossConfig()}
    workdir.mkdir(parents=True, exist_ok=True)
    return pretrain(workdir, config=PretrainConfig(steps=steps, **config), **(defaults | settings))


def copied(variables: Variables) -> Variables:
    """A step reuses its state's memory, so shared weights are copied first."""
    return jax.tree.map(jax.numpy.array, variables)
