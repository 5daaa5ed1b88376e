"""Every way to bring tokens to experts computes the same function, forward and backward."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.model.dispatch import IMPLEMENTATIONS, ExpertWeights
from composer2_jax.model.router import Routes

TOKENS, EMBED, EXPERTS, HIDDEN, CHOSEN = 12, 8, 5, 6, 2


def problem(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, ExpertWeights]:
    random = np.random.default_rng(0)
    chosen = np.stack([random.permutation(EXPERTS)[:CHOSEN] for _ in range(TOKENS)])
    if case == "all_on_one":  # two experts take everything, three have empty groups
        chosen = np.tile([3, 1], (TOKENS, 1))
    weights = random.uniform(0.1, 1.0, chosen.shape).astype(np.float32)
    experts = ExpertWeights(
        *(
            0.3 * random.normal(size=shape).astype(np.float32)
            for shape in [(EXPERTS, EMBED, HIDDEN)] * 2 + [(EXPERTS, HIDDEN, EMBED)]
        )
    )
    return random.normal(size=(TOKENS, EMBED)).astype(np.float32), chosen, weights, experts


def by_hand(x: Any, chosen: Any, weights: Any, experts: ExpertWeights) -> Any:
    """Fetches each assignment's own matrices."""
    gate = jnp.einsum("nd,nkdf->nkf", x, experts.gate[chosen])
    hidden = gate / (1 + jnp.exp(-gate)) * jnp.einsum("nd,nkdf->nkf", x, experts.up[chosen])
    return jnp.einsum("nk,nkf,nkfd->nd", weights, hidden, experts.down[chosen])


@pytest.mark.parametrize("case", ["mixed", "all_on_one"])
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_values_and_gradients_equal_the_loop_by_hand(name: str, case: str) -> None:
    """A dropped assignment, a wrong unsort or a NaN on an empty group's backward would show."""
    x, chosen, weights, experts = problem(case)

    def ours(x: Any, weights: Any, experts: ExpertWeights) -> Any:
        return IMPLEMENTATIONS[name](x, Routes(jnp.asarray(chosen), weights), experts)

    def scalar(function: Any) -> Any:
        return lambda *args: jnp.sum(jnp.sin(function(*args)))

    wanted = jax.jit(lambda x, w, e: by_hand(x, chosen, w, e))
    np.testing.assert_allclose(ours(x, weights, experts), wanted(x, weights, experts), atol=1e-5)
    have = jax.jit(jax.grad(scalar(ours), argnums=(0, 1, 2)))(x, weights, experts)
    want = jax.jit(jax.grad(scalar(wanted), argnums=(0, 1, 2)))(x, weights, experts)
    for one, other in zip(jax.tree.leaves(have), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
