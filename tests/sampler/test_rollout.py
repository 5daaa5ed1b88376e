"""The driver: conversations between an engine and environments, each token recorded as it was."""

import threading
import time

import pytest

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.sampler.engine import Sequence
from composer2_jax.sampler.rollout import Episode, EpisodeRequest, RolloutDriver, Script
from tests.envs.samples import TASK, task
from tests.sampler.samples import FakeEngine, FakeFleet, ToyCodec, broken

CODEC = ToyCodec()
FINISH = "<|finish|>good<|end|>"


def says(*turns: str):
    """A policy that says these turns in order, told by how many it has said; then finishes."""

    def policy(sequence: Sequence, fed: list[int]) -> list[int]:
        said = CODEC.decode(fed).count("<|assistant|>") - 1
        return CODEC.encode(turns[said] if said < len(turns) else FINISH)

    return policy


def driver_of(
    policy, fleet: FakeFleet, slots: int = 4, max_length: int = 10_000, script: Script | None = None
) -> RolloutDriver:
    engine = FakeEngine(policy, slots, max_length)
    engine.set_weights(None, 0)
    return RolloutDriver(engine, fleet, CODEC, max_turn_tokens=40, script=script)


def finish_all(driver: RolloutDriver, count: int = 1) -> list[Episode]:
    done: list[Episode] = []
    while len(done) < count:
        done += driver.pump()
    assert driver.active == 0
    return done


def play(policy, fleet: FakeFleet | None = None, **kwargs) -> Episode:
    fleet = fleet or FakeFleet()
    driver = driver_of(policy, fleet, **kwargs)
    driver.start(EpisodeRequest(TASK, seed=1))
    (episode,) = finish_all(driver)
    assert not fleet.open, "an episode was left open in its environment"
    assert driver.free == driver._engine.free_slots == kwargs.get("slots", 4)
    return episode


def sampled_text(episode: Episode) -> str:
    record = episode.transcript
    return CODEC.decode([t for t, on in zip(record.tokens, record.mask, strict=True) if on])


def test_an_episode_runs_to_its_finish() -> None:
    episode = play(says("<|undo_edit|><|end|>"))
    assert (episode.ending, episode.reward, episode.turns) == ("finish", 1.0, 2)
    assert CODEC.decode(episode.transcript.tokens) == (
        f"<|user|>{TASK.prompt}<|assistant|><|undo_edit|><|end|><|tool|>ok<|assistant|>{FINISH}"
    )
    assert sampled_text(episode) == "<|undo_edit|><|end|>" + FINISH
    assert [message.role for message in episode.messages] == [
        *("user", "assistant", "tool", "assistant")
    ]


def test_the_engine_is_fed_each_token_once_and_in_order() -> None:
    driver = driver_of(
        says("<|list_dir|><|search|>x<|end|>", "hm<|end|>", "<|list_dir|><|end|>"), FakeFleet()
    )
    driver.start(EpisodeRequest(TASK, seed=1))
    (episode,) = finish_all(driver)
    fed = driver._engine.ever_fed[0]
    assert fed == episode.transcript.tokens[: len(fed)]
    assert len(fed) == len(episode.transcript.tokens)


def test_a_malformed_turn_is_answered_and_stays_in_the_record() -> None:
    episode = play(says("<|edit_file|>x<|end|>"))
    assert episode.ending == "finish" and episode.reward == 1.0
    assert episode.messages[1].error == "error: edit_file needs new"
    assert episode.messages[2] == Message("tool", "error: edit_file needs new")
    assert episode.info["tool_errors"] == 1
    assert "<|edit_file|>x<|end|>" in sampled_text(episode)


def test_a_turn_that_never_ends_is_cut_and_answered() -> None:
    episode = play(says("x" * 100))
    assert episode.messages[1].error == "error: turn has no end"
    assert sampled_text(episode) == "x" * 40 + FINISH


def test_an_episode_is_cut_after_its_turns_and_keeps_its_reward() -> None:
    episode = play(lambda *_: CODEC.encode("<|search|>good<|end|>"), FakeFleet(max_turns=3))
    assert (episode.ending, episode.reward, episode.turns) == ("max_turns", 1.0, 3)
    assert episode.messages[-1] == Message("tool", "ok")


def test_a_full_context_ends_the_episode_and_it_is_graded_as_it_stands() -> None:
    """Found while sampling, and found when the harness's next tokens have no room."""
    looks = "<|search|>good<|end|>"
    opening = len(CODEC.encode(f"<|user|>{TASK.prompt}<|assistant|>"))
    turn = len(CODEC.encode(looks))
    between = len(CODEC.encode("<|tool|>ok<|assistant|>"))
    inside_second_turn = opening + turn + between + 2
    before_second_turn = opening + turn + 1
    for room, turns in ((inside_second_turn, 2), (before_second_turn, 1), (opening, 0)):
        episode = play(lambda *_: CODEC.encode(looks), max_length=room)
        assert (episode.ending, episode.turns) == ("context", turns)
        said = [message for message in episode.messages if message.role == "assistant"]
        assert len(said) == turns, "the turn that was cut is part of the record too"
        assert [bool(message.error) for message in said] == [False, True][:turns]
        assert episode.reward == float(turns > 0)
        assert sum(episode.transcript.mask) == (
            turn + 2 if room == inside_second_turn else turns * turn
        )


@pytest.mark.parametrize("verb", ["reset", "step", "truncate"])
def test_a_failure_of_the_machinery_is_told_from_a_bad_answer(verb: str) -> None:
    fleet = FakeFleet(**{verb: broken(1)})
    room = 40 if verb == "truncate" else 10_000
    episode = play(lambda *_: CODEC.encode("<|list_dir|><|end|>"), fleet, max_length=room)
    assert episode.ending == "infra" and episode.infra_error == "no sandbox (0)"


def test_a_bug_in_an_environment_is_not_taken_for_a_failure_of_the_machinery() -> None:
    driver = driver_of(says(), FakeFleet(step=[RuntimeError("a bug")]))
    driver.start(EpisodeRequest(TASK, seed=1))
    with pytest.raises(RuntimeError, match="a bug"):
        finish_all(driver)


def test_a_script_writes_turns_in_the_policys_place_without_being_trained_on() -> None:
    def script(messages: list[Message]) -> Message | None:
        if messages[-1].role == "user":
            return Message("assistant", calls=(ToolCall("list_dir"),))
        return None

    episode = play(says(), script=script)
    assert sampled_text(episode) == FINISH
    assert CODEC.decode(episode.transcript.tokens).endswith(
        "<|assistant|><|list_dir|><|end|><|tool|>ok<|assistant|>" + FINISH
    )
    assert episode.turns == 2
    episode = play(says(), FakeFleet(max_turns=2), script=lambda _: Message("assistant", "hm"))
    assert (episode.ending, sum(episode.transcript.mask)) == ("max_turns", 0)


def test_many_episodes_share_the_slots_and_keep_apart() -> None:
    """Each names itself in its first turn; the answers come back in a scrambled order."""

    def policy(sequence: Sequence, fed: list[int]) -> list[int]:
        first = CODEC.decode(fed).count("<|assistant|>") == 1
        return CODEC.encode(f"<|search|>{sequence.seed}<|end|>" if first else FINISH)

    fleet = FakeFleet()
    driver = driver_of(policy, fleet, slots=3)
    waiting = [EpisodeRequest(task(id=str(n)), seed=n, tag=(n, 0)) for n in range(10)]
    done: list[Episode] = []
    while len(done) < 10:
        while waiting and driver.free:
            driver.start(waiting.pop())
        fleet.held = len(done) % 2 == 0
        if fleet.held and not driver._engine.busy:
            fleet.waiting.reverse()
            fleet.release()
        done += driver.pump()
    for episode in done:
        name = str(episode.request.tag[0])
        assert episode.request.task.id == name
        assert sampled_text(episode) == f"<|search|>{name}<|end|>" + FINISH


def test_waking_ends_a_wait_for_environments() -> None:
    fleet = FakeFleet()
    fleet.held = True
    driver = driver_of(says(), fleet)
    driver.start(EpisodeRequest(TASK, seed=1))
    waker = threading.Timer(0.05, driver.wake)
    waker.start()
    began = time.monotonic()
    assert driver.pump() == [] and time.monotonic() - began >= 0.04
    fleet.release()
    assert finish_all(driver)[0].reward == 1.0
    waker.join()
