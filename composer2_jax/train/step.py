"""The training step: pure, jitted, the same for pretraining and for reinforcement.

It differentiates sums, adds them over microbatches, and divides once by the whole batch's weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from composer2_jax.core import trees
from composer2_jax.core.numerics import WeightedMetric
from composer2_jax.errors import UserError
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.router import updated_bias
from composer2_jax.optim.adamw import Optimizer
from composer2_jax.train.losses import Aux, Batch, LossFn
from composer2_jax.train.state import TrainState

Metrics = dict[str, Float[Array, ""]]
TrainStep = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


class Sums(NamedTuple):
    """Unreduced sums over some rows; sums of different rows simply add."""

    grads: Any
    loss: WeightedMetric
    aux: Aux
    tokens: Int[Array, ""]


def make_train_step(
    model: ModelConfig, optimizer: Optimizer, loss_fn: LossFn, *, microbatches: int = 1
) -> TrainStep:
    """Compiles `step(state, batch) -> (state, metrics)`; the old state's memory is reused.

    `loss_fn` may choose its own weight, for instance a constant a row; the weights of the
    microbatches are added before the one division. An update that is not finite is skipped and
    counted, and leaves weights, moments and router as they were.
    """

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        sums = partial(gradient_sums, optimizer, loss_fn, state.params, state.router)
        return apply_sums(model, optimizer, state, accumulate(sums, batch, microbatches))

    return jax.jit(train_step, donate_argnums=0)


def make_streamed_step(
    model: ModelConfig, optimizer: Optimizer, loss_fn: LossFn
) -> Callable[[TrainState, Sequence[Batch]], tuple[TrainState, Metrics]]:
    """The same step over a list of microbatches of few shapes, whose number may change.

    RL batches hold as many rows as their episodes need; this compiles each shape once instead of
    one program for every count.
    """
    one = jax.jit(partial(gradient_sums, optimizer, loss_fn))
    add = jax.jit(partial(jax.tree.map, jnp.add), donate_argnums=0)
    apply = jax.jit(partial(apply_sums, model, optimizer), donate_argnums=0)

    def streamed_step(state: TrainState, pieces: Sequence[Batch]) -> tuple[TrainState, Metrics]:
        sums = one(state.params, state.router, pieces[0])
        for piece in pieces[1:]:
            sums = add(sums, one(state.params, state.router, piece))
        return apply(state, sums)

    return streamed_step


def gradient_sums(
    optimizer: Optimizer, loss_fn: LossFn, params: Any, router: Any, batch: Batch
) -> Sums:
    """Gradients of the loss's sum with respect to the trained part, and what is reported."""
    trained, frozen = optimizer.split(params)

    def total(trained: Any) -> tuple[Float[Array, ""], tuple[WeightedMetric, Aux]]:
        loss, aux = loss_fn({"params": trees.merge(trained, frozen), "router": router}, batch)
        return loss.total, (loss, aux)

    grads, (loss, aux) = jax.grad(total, has_aux=True)(trained)
    return Sums(grads, loss, aux, jnp.sum(batch["segment_ids"] > 0))


def accumulate(sums: Callable[[Batch], Sums], batch: Batch, microbatches: int) -> Sums:
    """Sums over the microbatches of a batch, one after another."""
    if microbatches == 1:
        return sums(batch)
    pieces = jax.tree.map(lambda leaf: _split_rows(leaf, microbatches), batch)
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(sums, jax.tree.map(lambda leaf: leaf[0], pieces)),
    )
    added, _ = jax.lax.scan(
        lambda carry, micro: (jax.tree.map(jnp.add, carry, sums(micro)), None), zeros, pieces
    )
    return added


def apply_sums(
    model: ModelConfig, optimizer: Optimizer, state: TrainState, sums: Sums
) -> tuple[TrainState, Metrics]:
    """Divides once, and moves weights, moments and router biases, or none of them."""
    trained, frozen = optimizer.split(state.params)
    weight = sums.loss.weight
    scale = jnp.where(weight > 0, 1.0 / jnp.maximum(weight, 1e-9), 0.0)
    grads = jax.tree.map(lambda g: g * scale, sums.grads)
    grad_norm = optax.tree.norm(grads)
    usable = jnp.isfinite(grad_norm) & jnp.isfinite(sums.loss.total)
    with jax.named_scope("optimizer"):
        updated, opt_state = optimizer.update(grads, state.opt_state, trained, state.step)
    router = updated_router(state.router, sums.aux, model.moe.bias_update_rate, optimizer)
    new, old = (updated, opt_state, router), (trained, state.opt_state, state.router)
    trained, opt_state, router = jax.tree.map(lambda n, o: jnp.where(usable, n, o), new, old)
    new_state = state.replace(
        step=state.step + 1,
        skipped=state.skipped + 1 - usable,
        params=trees.merge(trained, frozen),
        router=router,
        opt_state=opt_state,
    )
    metrics = {name: metric.mean() for name, metric in sums.aux.metrics.items()}
    metrics |= {
        "objective": sums.loss.mean(),
        "tokens": sums.tokens,
        "grad_norm": grad_norm,
        "learning_rate": optimizer.learning_rate(state.step),
        "skipped": 1 - usable,
    }
    if sums.aux.loads is not None:
        metrics["load_max_over_mean"] = load_max_over_mean(sums.aux.loads)
    return new_state, metrics


def updated_router(router: Any, aux: Aux, rate: float, optimizer: Optimizer) -> Any:
    """Moves each selection bias by the whole batch's loads, except in frozen subtrees."""

    def move(path: Any, bias: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        load = aux.mtp_loads if trees.under(name, ("mtp",)) else aux.loads
        if load is None or not optimizer.is_trainable(name):
            return bias
        return updated_bias(bias, load, rate)

    return jax.tree_util.tree_map_with_path(move, router)


def load_max_over_mean(loads: Float[Array, "L E"]) -> Float[Array, ""]:
    """The busiest expert's load over the mean, in the least balanced layer."""
    return (loads.max(axis=-1) / jnp.maximum(loads.mean(axis=-1), 1e-9)).max()


def _split_rows(leaf: Array, pieces: int) -> Array:
    """[B, ...] -> [pieces, B / pieces, ...]; every device keeps rows of each piece."""
    if leaf.shape[0] % pieces:
        raise UserError(f"{leaf.shape[0]} rows do not divide into {pieces} microbatches")
    return leaf.reshape(leaf.shape[0] // pieces, pieces, *leaf.shape[1:]).swapaxes(0, 1)
