"""Typed description of an architecture; every difference between models is a field here."""

from __future__ import annotations

import dataclasses

from composer2_jax.errors import UserError, check_at_least


@dataclasses.dataclass(frozen=True)
class YarnConfig:
    """YaRN context extension (Peng et al. 2023) with DeepSeek's two magnitude factors.

    `factor` stretches a model trained at `original_length`; wavelengths that turn more than
    `beta_fast` times within it are left alone, fewer than `beta_slow` times fully interpolated.
    """

    factor: float = 1.0
    original_length: int = 4096
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 1.0


@dataclasses.dataclass(frozen=True)
class MLAConfig:
    """Multi-head latent attention (DeepSeek-V2). `q_lora_rank` None: queries without low rank."""

    kv_lora_rank: int = 64
    q_lora_rank: int | None = None
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    rope_theta: float = 10_000.0
    rope_interleave: bool = True
    yarn: YarnConfig | None = None


@dataclasses.dataclass(frozen=True)
class MoEConfig:
    """Sparse feed-forward with a sigmoid router (DeepSeek-V3, Kimi K2).

    `implementation` "dense" computes every expert and masks (best for a few tiny experts on a
    CPU), "ragged" sorts tokens by expert and multiplies group by group. Both drop nothing.
    """

    num_experts: int = 8
    experts_per_token: int = 2
    expert_dim: int = 64
    num_shared_experts: int = 1
    num_groups: int = 1
    groups_per_token: int = 1
    normalize_weights: bool = True
    weight_scale: float = 1.0
    bias_update_rate: float = 1e-3
    implementation: str = "dense"

    def __post_init__(self) -> None:
        sizes = ("num_experts", "experts_per_token", "expert_dim", "num_groups", "groups_per_token")
        check_at_least(self, 1, *sizes)
        check_at_least(self, 0, "num_shared_experts", "bias_update_rate")
        if self.num_experts % self.num_groups:
            raise UserError("MoEConfig.num_experts must divide by num_groups")
        group = self.num_experts // self.num_groups
        if self.num_groups > 1 and group < 2:
            raise UserError("MoEConfig.num_groups: a group is scored by its two best experts")
        if self.groups_per_token > self.num_groups:
            raise UserError("MoEConfig.groups_per_token exceeds num_groups")
        if self.experts_per_token > group * self.groups_per_token:
            raise UserError("MoEConfig.experts_per_token exceeds the experts left after grouping")
        if self.implementation not in ("dense", "ragged"):
            raise UserError("MoEConfig.implementation must be 'dense' or 'ragged'")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """One decoder: `first_dense_layers` dense blocks, then mixture-of-experts blocks.

    `prev_token_mixing` adds W e(tok_{t-1}) at the embedding. Published models do not have it; at
    under a million parameters it gives the copying that larger models learn in attention.
    `mtp_detach_trunk` keeps the draft loss out of the trunk (the report does not say; the main
    head never gets a gradient from it either way). `query_blocks` cuts attention's queries so that
    a block skips the keys after it: speed only.
    """

    vocab_size: int = 1024
    embed_dim: int = 128
    num_layers: int = 3
    first_dense_layers: int = 1
    dense_dim: int = 384
    num_heads: int = 4
    mla: MLAConfig = MLAConfig()
    moe: MoEConfig = MoEConfig()
    num_mtp_layers: int = 0
    norm_epsilon: float = 1e-6
    tie_embeddings: bool = False
    prev_token_mixing: bool = False
    max_length: int = 512
    init_scale: float = 0.02
    dtype: str = "float32"
    remat: bool = False
    scan_unroll: int = 1
    query_blocks: int = 1
    mtp_detach_trunk: bool = True

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "embed_dim", "num_layers", "dense_dim", "num_heads", "max_length")
        check_at_least(self, 1, *sizes, "scan_unroll", "query_blocks")
        check_at_least(self, 0, "first_dense_layers", "num_mtp_layers", "norm_epsilon")
        if self.first_dense_layers >= self.num_layers:
            raise UserError("ModelConfig.first_dense_layers must be less than num_layers")
        if self.num_mtp_layers > 1:
            raise UserError("ModelConfig.num_mtp_layers: one prediction depth is supported, 0 or 1")

    def check_vocabulary(self, size: int, source: object) -> None:
        """Raises UserError where `source` has more tokens than the model has embeddings.

        Fewer are fine: published models round theirs up.
        """
        if size > self.vocab_size:
            raise UserError(
                f"{source} has {size} tokens, but ModelConfig.vocab_size={self.vocab_size}"
            )

    @property
    def num_moe_layers(self) -> int:
        return self.num_layers - self.first_dense_layers
