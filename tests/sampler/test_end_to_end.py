"""A real fleet, a real engine, the real tokenizer: what is recorded is what training computes."""

from collections.abc import Iterator

import numpy as np
import pytest

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.fleet import EnvFleet
from composer2_jax.sampler.records import episode_record
from composer2_jax.sampler.rollout import Episode, EpisodeRequest, RolloutDriver, Script
from tests.envs.samples import TASK, task
from tests.sampler.samples import SAMPLER, engine, tokenizer, training_logprobs, variables


@pytest.fixture(scope="module")
def fleet() -> Iterator[EnvFleet]:
    with EnvFleet(1, 2, EnvConfig(max_turns=2, diff=True)) as fleet:
        yield fleet


def play(fleet: EnvFleet, count: int, turn: int, script: Script | None = None) -> list[Episode]:
    driver = RolloutDriver(engine(), fleet, tokenizer(), max_turn_tokens=turn, script=script)
    waiting = [EpisodeRequest(task(prompt="x"), seed=n, tag=(0, n)) for n in range(count)]
    done: list[Episode] = []
    while len(done) < count:
        while waiting and driver.free:
            driver.start(waiting.pop())
        done += driver.pump()
    return sorted(done, key=lambda episode: episode.request.tag)


def test_a_models_conversation_is_recorded_as_training_will_compute_it(fleet: EnvFleet) -> None:
    """More episodes than slots, of two turns each, with the environment's errors between them."""
    episodes = play(fleet, SAMPLER.slots + 2, turn=6)
    for episode in episodes:
        record = episode.transcript
        assert episode.ending in ("max_turns", "context") and episode.reward == 0.0
        assert sum(record.mask) >= 6 and set(record.versions) == {-1, 0}
        size = max(np.flatnonzero(record.mask)) + 1
        sampled = np.array(record.mask[:size], bool)
        expected = training_logprobs(record.tokens[:size])
        np.testing.assert_allclose(
            np.array(record.logprobs[:size])[sampled], expected[sampled], atol=1e-4
        )
        other = training_logprobs(record.tokens[:size], variables(1))
        assert np.abs(np.array(record.logprobs[:size]) - other)[sampled].max() > 0.1
        assert episode.info["tool_errors"] == episode.turns
    assert len({tuple(episode.transcript.tokens) for episode in episodes}) == len(episodes)
    assert any(episode.turns == 2 for episode in episodes)
    again = play(fleet, 1, turn=6)[0]
    assert again.transcript.tokens == episodes[0].transcript.tokens


def test_a_scripted_repair_earns_the_reward(fleet: EnvFleet) -> None:
    """The whole way of a reward: calls, tools, hidden tests, record."""
    edit = {"old": "return x", "new": "return min(x, hi)", "path": TASK.module}
    turns = [(ToolCall("edit_file", edit),), (ToolCall("finish"),)]

    def repair(messages: list[Message]) -> Message:
        said = sum(message.role == "assistant" for message in messages)
        return Message("assistant", calls=turns[said])

    (episode,) = play(fleet, 1, turn=6, script=repair)
    assert (episode.reward, episode.ending, episode.turns) == (1.0, "finish", 2)
    record = episode_record(episode)
    assert record["first_edit_right"] is True and record["sampled_tokens"] == 0
    assert "+    return min(x, hi)" in record["diff"]
