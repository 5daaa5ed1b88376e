"""Continuous batching gives each sequence what it would have got alone, and what training sees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from composer2_jax.errors import UserError
from composer2_jax.sampler.engine import Engine, SamplerConfig, Sequence, Turn
from tests.sampler.samples import MODEL, SAMPLER, VOCABULARY, engine, run, training_logprobs

NEVER: list[int] = []  # no stop ids


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(1, VOCABULARY, length).tolist()


def sample(made: Engine, seed: int, tokens: list[int], count: int = 6) -> Turn:
    """One turn of a fresh sequence, which gives its slot back."""
    sequence = made.open(seed, NEVER, count)
    assert made.submit(sequence, tokens)
    assert run(made) == [sequence]
    made.close(sequence)
    return sequence.turn


def talk(made: Engine, sequence: Sequence, *pieces: list[int]) -> list[int]:
    """The whole context of a sequence after a turn on each piece."""
    context: list[int] = []
    for piece in pieces:
        assert made.submit(sequence, piece)
        run(made)
        context += piece + sequence.turn.tokens
    return context


def test_tokens_do_not_depend_on_the_neighbours() -> None:
    prompts = [prompt(n, length) for n, length in enumerate((5, 21, 9, 13))]
    made = engine()
    alone = [sample(made, 100 + n, tokens) for n, tokens in enumerate(prompts)]
    sequences = [made.open(100 + n, NEVER, 6) for n in range(4)]
    # The others join while the first are already sampling.
    for sequence, tokens in zip(sequences[:2], prompts[:2], strict=True):
        made.submit(sequence, tokens)
    made.step()
    for sequence, tokens in zip(sequences[2:], prompts[2:], strict=True):
        made.submit(sequence, tokens)
    run(made)
    for turn, sequence in zip(alone, sequences, strict=True):
        assert sequence.turn.tokens == turn.tokens
        np.testing.assert_allclose(sequence.turn.logprobs, turn.logprobs, atol=1e-5)
    assert len({tuple(turn.tokens) for turn in alone}) == 4


def test_sampled_logprobs_are_those_of_the_training_forward_pass() -> None:
    """Two turns with harness tokens between them; the context outgrows the first cache length."""
    made = engine()
    sequence = made.open(5, NEVER, 12)
    first = prompt(1, 19)
    assert made.submit(sequence, first)
    run(made)
    one = sequence.turn
    between = prompt(2, 7)
    assert made.submit(sequence, between)
    run(made)
    two = sequence.turn
    context = first + one.tokens + between + two.tokens
    assert len(context) > SAMPLER.length_buckets[0]
    expected = training_logprobs(context)
    np.testing.assert_allclose(one.logprobs, expected[19:31], atol=1e-4)
    np.testing.assert_allclose(two.logprobs, expected[38:], atol=1e-4)
    # The check can fail: neighbouring tokens of the same context differ by far more.
    assert np.abs(np.asarray(one.logprobs) - expected[18:30]).max() > 0.1


def test_a_prompt_in_pieces_gives_what_the_whole_prompt_gives() -> None:
    tokens = prompt(3, 21)
    pieces = sample(engine(), 9, tokens)
    whole = sample(engine(dataclasses.replace(SAMPLER, prefill_shapes=((2, 32),))), 9, tokens)
    assert whole.tokens == pieces.tokens
    np.testing.assert_allclose(whole.logprobs, pieces.logprobs, atol=1e-5)


def test_a_slot_used_again_shows_nothing_of_its_last_owner() -> None:
    fresh = sample(engine(), 4, prompt(4, 11))
    used = engine()
    for seed in range(SAMPLER.slots):
        sample(used, seed, prompt(50 + seed, 40))
    # Whatever a slot holds beyond its sequence's own tokens plays no part.
    used._cache = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e4), used._cache)
    again = sample(used, 4, prompt(4, 11))
    assert again.tokens == fresh.tokens and again.logprobs == fresh.logprobs


def test_a_sequence_closed_half_way_leaves_no_work_behind() -> None:
    made = engine()
    sequence = made.open(1, NEVER, 50)
    made.submit(sequence, prompt(0, 20))
    made.step()
    made.close(sequence)
    assert not made.busy and made.free_slots == SAMPLER.slots
    decoding = made.open(2, NEVER, 50)
    made.submit(decoding, prompt(0, 5))
    made.step()
    made.step()
    made.close(decoding)
    assert not made.busy and made.step() == [] and made.free_slots == SAMPLER.slots


def test_a_turn_ends_at_its_stop_id_its_length_or_the_end_of_the_context() -> None:
    made = engine()
    free_run = sample(made, 6, prompt(6, 10), 12)
    assert free_run.stop == "turn_length" and len(free_run.tokens) == 12
    stop = free_run.tokens[4]
    first = free_run.tokens.index(stop)
    sequence = made.open(6, [stop, VOCABULARY + 1], 12)
    made.submit(sequence, prompt(6, 10))
    run(made)
    assert sequence.turn.stop == "stop" and sequence.turn.tokens == free_run.tokens[: first + 1]
    made.close(sequence)
    long = sample(made, 6, prompt(6, 50), 100)
    assert long.stop == "context" and len(long.tokens) == SAMPLER.max_length - 50
    assert len(long.logprobs) == len(long.versions) == len(long.tokens)
    full = prompt(6, 50) + long.tokens
    np.testing.assert_allclose(long.logprobs, training_logprobs(full)[50:], atol=1e-4)


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused() -> None:
    made = engine()
    sequence = made.open(1, NEVER, 100)
    assert not made.submit(sequence, prompt(0, SAMPLER.max_length))
    assert sequence.turn.stop == "context" and not made.busy
    # The sequence is still usable: nothing of the refused prompt stayed behind.
    assert made.submit(sequence, prompt(0, SAMPLER.max_length - 1))
    run(made)
    assert sequence.turn.stop == "context" and len(sequence.turn.tokens) == 1
    assert not made.submit(sequence, [])


def test_a_later_turn_continues_the_context_and_not_the_prompt_alone() -> None:
    made = engine()
    one, two = made.open(8, NEVER, 5), made.open(8, NEVER, 5)
    context = talk(made, one, prompt(8, 6), prompt(9, 3))
    longer = talk(made, two, context[:14])  # the same tokens, all of them as the prompt
    assert longer[14:] == context[14:19]


def test_more_work_than_rows_is_done_to_the_end() -> None:
    made = engine()
    sequences = [made.open(seed, NEVER, 1 + seed) for seed in range(SAMPLER.slots)]
    for seed, sequence in enumerate(sequences):
        made.submit(sequence, prompt(seed, 3 + 9 * seed))
    finished = run(made)
    assert sorted(map(id, finished)) == sorted(map(id, sequences))
    assert [len(sequence.turn.tokens) for sequence in sequences] == [1, 2, 3, 4]


def test_an_engine_without_weights_says_so() -> None:
    made = Engine(MODEL, SAMPLER)
    made.submit(made.open(0, NEVER, 1), [1])
    with pytest.raises(RuntimeError, match="no weights"):
        made.step()


def test_sizes_that_cannot_hold_the_work_are_refused() -> None:
    with pytest.raises(UserError, match="decode_rows"):
        SamplerConfig(slots=65)
    with pytest.raises(UserError, match="length_buckets"):
        SamplerConfig(max_length=400)
