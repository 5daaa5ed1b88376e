"""Weights that change under a running sampler: no cache of old weights is used for a new sequence,
and every token says which version drew it.
"""

import numpy as np
import pytest

from composer2_jax.sampler.engine import Engine, Sequence, Turn
from tests.sampler.samples import (
    MODEL,
    SAMPLER,
    VOCABULARY,
    engine,
    run,
    training_logprobs,
    variables,
)

PROMPT = np.random.default_rng(0).integers(1, VOCABULARY, 11).tolist()
SUFFIX = np.random.default_rng(1).integers(1, VOCABULARY, 5).tolist()


def opened(made: Engine, tokens: list[int], count: int = 6) -> Sequence:
    sequence = made.open(7, [], count)
    assert made.submit(sequence, tokens)
    return sequence


def sample(made: Engine, tokens: list[int]) -> Turn:
    sequence = opened(made, tokens)
    run(made)
    made.close(sequence)
    return sequence.turn


@pytest.mark.parametrize("tokens", [PROMPT, PROMPT + SUFFIX])
def test_after_an_update_the_same_prompt_is_as_in_a_cold_engine(tokens: list[int]) -> None:
    """Every slot has seen the prompt under the old weights; none of that may be used again."""
    cold = Engine(MODEL, SAMPLER)
    cold.set_weights(variables(1), 1)
    expected = sample(cold, tokens)
    used = engine()
    owners = [opened(used, PROMPT) for _ in range(SAMPLER.slots)]
    run(used)
    for owner in owners:
        used.close(owner)
    used.set_weights(variables(1), 1)
    found = sample(used, tokens)
    assert found.tokens == expected.tokens and found.logprobs == expected.logprobs
    context = tokens + found.tokens
    np.testing.assert_allclose(
        found.logprobs, training_logprobs(context, variables(1))[len(tokens) :], atol=1e-4
    )
    assert found.tokens != owners[0].turn.tokens, "the two versions agree: the test shows nothing"


def test_a_token_carries_the_version_that_drew_it() -> None:
    """In flight: the sequence goes on with the new weights, and its cache is kept."""
    alone = sample(engine(), PROMPT)
    made = engine()
    sequence = opened(made, PROMPT)
    while len(sequence.turn.tokens) < 3:
        made.step()
    made.set_weights(variables(1), 5)
    run(made)
    assert sequence.turn.versions == [0, 0, 0, 5, 5, 5]
    assert sequence.turn.tokens[:3] == alone.tokens[:3]
    assert sequence.turn.logprobs[:3] == alone.logprobs[:3]
    assert sequence.turn.logprobs[3:] != alone.logprobs[3:]
    made.submit(sequence, SUFFIX)
    run(made)
    assert sequence.turn.versions == [5] * 6


def test_an_update_in_the_middle_of_a_prompt_counts_from_the_first_token() -> None:
    made = engine()
    sequence = opened(made, PROMPT)
    made.step()
    assert sequence.length and not sequence.turn.tokens
    made.set_weights(variables(1), 1)
    run(made)
    assert set(sequence.turn.versions) == {1}


@pytest.mark.parametrize("version", [3, 2, -1])
def test_an_engine_never_goes_back_to_older_weights(version: int) -> None:
    made = engine(version=3)
    before = sample(made, PROMPT)
    with pytest.raises(ValueError, match="does not follow 3"):
        made.set_weights(variables(1), version)
    again = sample(made, PROMPT)
    assert again.tokens == before.tokens and set(again.versions) == {3}
