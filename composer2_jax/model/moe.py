"""Mixture of experts: router, routed experts and the shared expert, told in one short story."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from composer2_jax.model import dispatch, router
from composer2_jax.model.layers import Layer, SwiGLU


class MoE(Layer):
    """Sparse feed-forward of one block.

    The selection bias lives in the "router" collection, outside the parameters: no gradient, no
    optimizer mask, updated from loads by the train step (`router.updated_bias`).
    """

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        counted: Float[Array, "B T"],
        replay: Int[Array, "B T k"] | None = None,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "E"], Int[Array, "B T k"]]:
        """Returns the output, the load of each expert, and the experts each token took."""
        cfg, moe = self.config, self.config.moe
        flat = x.reshape(-1, cfg.embed_dim)
        with jax.named_scope("router"):
            gate = self.weight(
                "router_proj", (cfg.embed_dim, moe.num_experts), ("embed", None), cfg.embed_dim
            )
            bias = self.variable("router", "bias", jnp.zeros, (moe.num_experts,), jnp.float32)
            logits = flat.astype(jnp.float32) @ gate.astype(jnp.float32)
            wanted = None if replay is None else replay.reshape(-1, moe.experts_per_token)
            routes = router.route(logits, bias.value, moe, wanted)
            load = router.loads(routes.experts, counted.reshape(-1), moe.num_experts)
        with jax.named_scope("experts"):
            out = dispatch.IMPLEMENTATIONS[moe.implementation](flat, routes, self._experts())
        with jax.named_scope("shared_experts"):
            if moe.num_shared_experts:
                shared = SwiGLU(cfg, moe.num_shared_experts * moe.expert_dim, name="shared")
                out = out + shared(flat)
        return out.reshape(x.shape), load, routes.experts.reshape(*x.shape[:2], -1)

    def _experts(self) -> dispatch.ExpertWeights:
        embed, moe = self.config.embed_dim, self.config.moe
        size = moe.num_experts
        up_shape, up_axes = (size, embed, moe.expert_dim), ("experts", "embed", "mlp")
        down_shape, down_axes = (size, moe.expert_dim, embed), ("experts", "mlp", "embed")
        return dispatch.ExpertWeights(
            gate=self.weight("experts_gate", up_shape, up_axes, embed),
            up=self.weight("experts_up", up_shape, up_axes, embed),
            down=self.weight("experts_down", down_shape, down_axes, moe.expert_dim),
        )
