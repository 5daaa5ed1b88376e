"""A drawn token follows the distribution and depends on the request's seed and position alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.sampler.sampling import draw

PROBABILITIES = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005])
LOGITS = np.log(PROBABILITIES)
DRAWS = 20_000  # rows of every call, so that each temperature is compiled once
CRITICAL_999 = 24.32  # of chi-square with 7 degrees of freedom

_draw = jax.jit(draw, static_argnums=3)


def drawn(
    logits: np.ndarray,
    seeds: np.ndarray | int = 0,
    positions: np.ndarray | int = 0,
    temperature: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and log-probabilities of DRAWS rows; what is single stands for all rows."""
    rows = np.broadcast_to(logits, (DRAWS, len(PROBABILITIES))).astype(np.float32)
    numbers = (np.broadcast_to(n, DRAWS).astype(np.int32) for n in (seeds, positions))
    tokens, logprobs = _draw(jnp.asarray(rows), *map(jnp.asarray, numbers), temperature)
    return np.asarray(tokens), np.asarray(logprobs)


def chi_square(tokens: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * len(tokens)
    counts = np.bincount(tokens, minlength=len(probabilities))
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_follow_the_distribution(temperature: float) -> None:
    tokens, _ = drawn(LOGITS, np.arange(DRAWS), 7, temperature)
    wanted = PROBABILITIES ** (1 / temperature)
    assert chi_square(tokens, wanted / wanted.sum()) < CRITICAL_999


def test_the_positions_of_one_sequence_are_independent_draws() -> None:
    tokens, _ = drawn(LOGITS, 3, np.arange(DRAWS))
    assert chi_square(tokens, PROBABILITIES) < CRITICAL_999
    # Neighbouring positions would repeat a token more often than chance if they shared numbers.
    repeats = (tokens[1:] == tokens[:-1]).mean()
    assert abs(repeats - (PROBABILITIES**2).sum()) < 0.015


def test_neighbouring_seeds_share_no_random_numbers() -> None:
    """Seed s at position p and seed s+1 at position p-1 would agree if the two were just added."""
    tokens, _ = drawn(LOGITS, np.arange(DRAWS), DRAWS - np.arange(DRAWS))
    assert chi_square(tokens, PROBABILITIES) < CRITICAL_999


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (1 - 2**-24, 3)])
def test_the_ends_of_the_random_numbers_range_give_tokens_that_can_be(
    monkeypatch: pytest.MonkeyPatch, number: float, token: int
) -> None:
    monkeypatch.setattr(jax.random, "uniform", lambda key: jnp.float32(number))
    logits = jnp.asarray([[-jnp.inf, 0.0, -jnp.inf, 0.0, -jnp.inf]])
    tokens, _ = draw(logits, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), 1.0)
    assert tokens.tolist() == [token]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_the_logprob_is_that_of_the_token_at_temperature_one(temperature: float) -> None:
    tokens, logprobs = drawn(LOGITS + 5.0, np.arange(DRAWS), 0, temperature)
    np.testing.assert_allclose(logprobs, LOGITS[tokens], atol=1e-5)


def test_temperature_zero_takes_the_most_likely_token() -> None:
    rows = np.random.default_rng(0).normal(size=(DRAWS, len(PROBABILITIES)))
    tokens, _ = drawn(rows, np.arange(DRAWS), temperature=0.0)
    assert (tokens == rows.argmax(axis=1)).all()


def test_a_token_without_probability_is_never_drawn() -> None:
    """Neither before the first possible token, nor between, nor after the last."""
    none = -np.inf
    tokens, logprobs = drawn(
        np.array([-1e9, none, 0.0, none, 0.0, -1e9, none, none]), np.arange(DRAWS)
    )
    assert set(tokens.tolist()) == {2, 4}
    np.testing.assert_allclose(logprobs, np.log(0.5), atol=1e-5)


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(DRAWS, len(PROBABILITIES)))
    seeds, positions = rng.integers(0, 1000, DRAWS), rng.integers(0, 1000, DRAWS)
    tokens, logprobs = drawn(rows, seeds, positions)
    order = rng.permutation(DRAWS)
    shuffled, shuffled_logprobs = drawn(rows[order], seeds[order], positions[order])
    assert (shuffled == tokens[order]).all()
    assert (shuffled_logprobs == logprobs[order]).all()
