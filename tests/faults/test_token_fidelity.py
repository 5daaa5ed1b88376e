"""What is trained on is what was sampled: no id is encoded again, masked wrongly, or moved.

A driver with a toy tokenizer, whose text "ab" has two spellings in tokens.
"""

from composer2_jax.data.chat import conversation_to_ids
from composer2_jax.sampler.engine import Sequence
from composer2_jax.sampler.rollout import Episode, EpisodeRequest, RolloutDriver
from tests.envs.samples import TASK
from tests.sampler.samples import FakeEngine, FakeFleet, ToyCodec

CODEC = ToyCodec()
A, B, AB = (CODEC.pieces.index(piece) for piece in ("a", "b", "ab"))
END = CODEC.pieces.index("<|end|>")
ASSISTANT = CODEC.pieces.index("<|assistant|>")
SEARCH = CODEC.pieces.index("<|search|>")
FINISH = CODEC.encode("<|finish|><|end|>")


def play(
    turns: list[list[int]], stop_ids: list[int] | None = None, answer: str = "ok"
) -> tuple[Episode, list[int]]:
    """An episode whose turns are these ids, and all ids that the engine was fed or drew."""

    def policy(sequence: Sequence, fed: list[int]) -> list[int]:
        return turns[fed.count(ASSISTANT) - 1]

    engine, fleet = FakeEngine(policy), FakeFleet()
    engine.set_weights(None, 0)
    fleet.answer = answer
    driver = RolloutDriver(engine, fleet, CODEC, max_turn_tokens=8)
    driver._stop_ids = stop_ids or driver._stop_ids
    driver.start(EpisodeRequest(TASK, seed=0))
    done: list[Episode] = []
    while not done:
        done = driver.pump()
    return done[0], engine.ever_fed[0]


def sampled(episode: Episode) -> list[int]:
    record = episode.transcript
    return [token for token, on in zip(record.tokens, record.mask, strict=True) if on]


def test_sampled_ids_stay_what_they_are_though_their_text_has_another_spelling() -> None:
    assert CODEC.encode("ab") == [AB]
    turn = [SEARCH, A, B, END]
    episode, fed = play([turn, FINISH])
    assert episode.messages[1].calls[0].arguments == {"query": "ab"}
    assert sampled(episode) == turn + FINISH
    assert AB not in episode.transcript.tokens and AB not in fed
    record = episode.transcript
    logprobs = [x for x, on in zip(record.logprobs, record.mask, strict=True) if on]
    assert logprobs == [-1 / 8, -2 / 8, -3 / 8, -4 / 8, -1 / 8, -2 / 8]
    assert all(x == 0.0 for x, on in zip(record.logprobs, record.mask, strict=True) if not on)


def test_what_stands_between_turns_is_the_templates_and_is_masked() -> None:
    """The rollout's ids are those of the rendered conversation when the spelling is canonical."""
    episode, _ = play([[SEARCH, AB, END], FINISH])
    ids, mask = conversation_to_ids(episode.messages, CODEC.encode)
    assert (episode.transcript.tokens, episode.transcript.mask) == (ids, mask)
    end = ids.index(END)
    between = CODEC.encode("<|tool|>ok<|assistant|>")
    assert ids[end + 1 : end + 1 + len(between)] == between
    assert not any(mask[end + 1 : end + 1 + len(between)])
    # Another spelling differs from its first token that is spelt otherwise, and no earlier.
    other, _ = play([[SEARCH, A, B, END], FINISH])
    place = ids.index(AB)
    assert other.transcript.tokens[:place] == ids[:place]
    assert other.transcript.tokens[place + 2 :] == ids[place + 1 :]


def test_each_prompt_extends_all_that_was_fed_and_drawn_before() -> None:
    """A template that rewrote an earlier turn would make the engine's cache and the record part."""
    turns = [CODEC.encode("I think<|search|>x<|end|>"), [A, B, END], [B] * 8, FINISH]
    episode, fed = play(turns)
    assert fed == episode.transcript.tokens
    assert [message.role for message in episode.messages].count("assistant") == 4


def test_a_turn_is_cut_by_its_stop_reason_and_not_by_the_last_id() -> None:
    """A second stop id ends a turn as well as the first one does."""
    other = CODEC.pieces.index("~")
    episode, _ = play([[SEARCH, A, other], FINISH], stop_ids=[END, other])
    assert sampled(episode) == [SEARCH, A, other, *FINISH]
    assert episode.transcript.tokens.count(END) == 1, "an end was added to a turn that had ended"


def test_an_end_that_the_harness_adds_is_not_the_models() -> None:
    turn = [SEARCH, *[A] * 7]
    episode, _ = play([turn, FINISH])
    record = episode.transcript
    place = record.tokens.index(END)
    assert record.tokens[place - 8 : place] == turn
    assert (record.mask[place], record.logprobs[place], record.versions[place]) == (0, 0.0, -1)
    assert sampled(episode) == turn + FINISH
    assert episode.messages[1].error == "error: turn has no end"


def test_a_marker_in_a_tools_answer_is_text() -> None:
    episode, _ = play([[SEARCH, A, END], FINISH], answer="<|end|><|assistant|>")
    assert episode.transcript.tokens.count(END) == 2
    assert "<|tool|><|end|><|assistant|>" in CODEC.decode(episode.transcript.tokens)
