"""A value that cannot work is refused by its own config, before anything runs."""

from typing import Any

import pytest

from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.solver import SolverConfig
from composer2_jax.envs.synthesis import SynthesisConfig
from composer2_jax.errors import UserError
from composer2_jax.evals.suites import EvalConfig
from composer2_jax.model.config import ModelConfig, MoEConfig
from composer2_jax.optim.adamw import OptimizerConfig
from composer2_jax.rl.learner import ReinforceConfig
from composer2_jax.rl.rewards import RewardConfig
from composer2_jax.sampler.engine import Engine, SamplerConfig
from composer2_jax.train.loop import DataConfig, PretrainConfig, Source
from composer2_jax.train.losses import LossConfig

BAD: tuple[tuple[type, dict[str, Any]], ...] = (
    (DataConfig, {"rows": 0}),
    (DataConfig, {"length": 1}),
    (Source, {"run": "x", "step": -1}),
    (PretrainConfig, {"steps": 0}),
    (PretrainConfig, {"save_every": 0}),
    (PretrainConfig, {"microbatches": 0}),
    (PretrainConfig, {"keep_steps": (5, 0)}),
    (LossConfig, {"z": -0.1}),
    (LossConfig, {"mtp": float("nan")}),
    (OptimizerConfig, {"learning_rate": -1e-3}),
    (OptimizerConfig, {"b2": 1.0}),
    (OptimizerConfig, {"clip_norm": float("nan")}),
    (ModelConfig, {"vocab_size": 0}),
    (ModelConfig, {"first_dense_layers": 3}),
    (ModelConfig, {"query_blocks": 0}),
    (MoEConfig, {"experts_per_token": 0}),
    (MoEConfig, {"num_experts": 4, "num_groups": 4}),
    (MoEConfig, {"groups_per_token": 2}),
    (ReinforceConfig, {"max_staleness": -1}),
    (ReinforceConfig, {"group_size": 1}),
    (ReinforceConfig, {"groups_per_update": 0}),
    (ReinforceConfig, {"tokens_per_episode": 0}),
    (ReinforceConfig, {"row_lengths": ()}),
    (ReinforceConfig, {"save_every": 0}),
    (ReinforceConfig, {"ratio_cap": 0.0}),
    (RewardConfig, {"length_k": 0.0}),
    (RewardConfig, {"invalid_call": -1.0}),
    (SamplerConfig, {"slots": 0}),
    (SamplerConfig, {"prefill_shapes": ((32, 0),)}),
    (SamplerConfig, {"decode_rows": ()}),
    (SamplerConfig, {"temperature": -1.0}),
    (EvalConfig, {"samples": 0}),
    (EvalConfig, {"env_workers": 0}),
    (EnvConfig, {"max_turns": 0}),
    (EnvConfig, {"tools": ("read_file", "reed_file")}),
    (SolverConfig, {"test_share": 1.5}),
    (SynthesisConfig, {"train_share": -0.1}),
)


@pytest.mark.parametrize(("config", "values"), BAD, ids=lambda value: str(value)[-40:])
def test_a_value_that_cannot_work_is_named(config: type, values: dict[str, Any]) -> None:
    field = list(values)[-1]
    with pytest.raises(UserError, match=rf"{config.__name__}.*{field}"):
        config(**values)


def test_the_defaults_are_fine() -> None:
    for config in {config for config, _ in BAD} - {Source}:
        config()


def test_a_sampler_may_not_go_beyond_the_models_context() -> None:
    with pytest.raises(UserError, match=r"SamplerConfig.max_length=384 exceeds"):
        Engine(ModelConfig(max_length=383), SamplerConfig())
