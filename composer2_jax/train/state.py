"""Everything that a training step changes."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Int

from composer2_jax.model.transformer import Variables
from composer2_jax.optim.adamw import Optimizer


class TrainState(flax.struct.PyTreeNode):
    """`router` holds the selection biases; `opt_state` covers the trained parameters only."""

    step: Int[Array, ""]  # batches consumed, skipped updates included
    skipped: Int[Array, ""]  # updates not applied because something was not finite
    params: Any
    router: Any
    opt_state: Any

    @property
    def variables(self) -> Variables:
        """What `Transformer.apply` takes."""
        return {"params": self.params, "router": self.router}


def init_state(variables: Variables, optimizer: Optimizer) -> TrainState:
    """A state at step 0 with the given weights and fresh moments."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        params=variables["params"],
        router=variables["router"],
        opt_state=optimizer.init(variables["params"]),
    )
