"""What is written down about an episode says what happened in it."""

import dataclasses

import pytest

from composer2_jax.agent.call_format import render_turn
from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.sampler import records
from composer2_jax.sampler.rollout import Episode, EpisodeRequest
from tests.envs.samples import TASK
from tests.sampler.samples import ToyCodec

CODEC = ToyCodec()
RIGHT = {"old": "return x", "new": "return min(x, hi)"}
WRONG = {"old": "return x", "new": "return lo"}


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name, arguments)


def conversation(*turns: tuple[ToolCall, str]) -> list[Message]:
    """A prompt and turns of one call each, with the answers."""
    messages = [Message("user", TASK.prompt)]
    for made, result in turns:
        messages += [Message("assistant", calls=(made,)), Message("tool", result)]
    return messages


LOOK = (call("search"), "lib/clamp.py:1|def clamp(x, lo, hi):")


def read(line: str, result: str = "") -> tuple[ToolCall, str]:
    return call("read_file", line=line), result


def edit(arguments: dict[str, str], result: str = "ok") -> tuple[ToolCall, str]:
    return call("edit_file", **arguments), result


WIDE = {"old": "lo\n    return x", "new": "lo\n    return min(x, hi)"}
TOO_WIDE = {**WIDE, "new": "hi\n    return min(x, hi)"}


@pytest.mark.parametrize(
    ("turns", "right"),
    [
        ([LOOK, read("4|")], None),
        ([LOOK, read("4|"), edit(RIGHT)], True),
        ([LOOK, read("4|"), edit(WRONG)], False),
        # The first accepted edit counts: not a refused one, and not a later one.
        ([read("4|"), edit(WRONG, "error: no"), edit(RIGHT)], True),
        ([read("4|"), edit(WRONG), edit(RIGHT)], False),
        # The right text on a wrong line.
        ([read("3"), edit(RIGHT)], False),
        ([read("1-3"), edit(RIGHT)], False),
        # Within several lines, within the whole file, and after a search moved the focus back.
        ([read("3|-9|"), edit(RIGHT)], True),
        ([read(""), edit(RIGHT)], True),
        ([read("2|"), LOOK, edit(RIGHT)], True),
        # A read that was refused moves nothing.
        ([read("4"), read("99", "error: 4 lines"), edit(RIGHT)], True),
        # The right line, alone and with another one spoilt beside it.
        ([read(""), edit(WIDE)], True),
        ([read(""), edit(TOO_WIDE)], False),
    ],
)
def test_the_first_edit_is_judged(turns: list[tuple[ToolCall, str]], right: bool | None) -> None:
    assert records.first_edit_right(TASK, conversation(*turns)) is right


def episode(messages: list[Message], **changes) -> Episode:
    made = Episode(EpisodeRequest(TASK, seed=0, tag=(3, 2)), started=0.0, messages=messages)
    for message in messages:
        if message.role == "assistant":
            ids = CODEC.encode(message.content if message.error else render_turn(message))
            made.transcript.append_sampled(ids, [0.0] * len(ids), 0)
        else:
            made.transcript.append_message(message, CODEC.encode)
    return dataclasses.replace(made, turns=sum(m.role == "assistant" for m in messages), **changes)


def whole() -> Episode:
    test = call("run_command")
    messages = conversation(read("4"), edit(RIGHT), (test, "exit 1"), (test, "exit 0"))
    messages += conversation((call("run_command", command="ls"), "exit 2"))[1:]
    bad = "<|read_file|>x<|end|>"
    messages += [Message("assistant", bad, (), "error: no line"), Message("tool", "error: no line")]
    messages.append(Message("assistant", "done.", (call("finish", message="bye"),)))
    return episode(messages, reward=1.0, ending="finish", info={"tool_errors": 1, "diff": "+x"})


def test_the_numbers_of_an_episode() -> None:
    numbers = records.statistics_of(whole())
    assert numbers["turns"] == 7 and numbers["invalid_calls"] == 1 and numbers["finished"] == 1.0
    assert numbers["tests_run"] == 2, "a command of the agent's own is not the task's tests"
    assert numbers["first_edit_right"] == 1.0
    assert numbers["total_tokens"] > numbers["sampled_tokens"] > 0
    assert "first_edit_right" not in records.statistics_of(episode(conversation(read("4"))))


def test_the_record_of_an_episode() -> None:
    record = records.episode_record(whole())
    assert (record["task_id"], record["sample"], record["ending"]) == ("clamp-0", 2, "finish")
    assert record["first_edit_right"] is True and record["finished"] is True
    assert record["visible_pass"] is True, "what `ls` exits with is no verdict of the tests"
    assert record["tool_counts"] == {"read_file": 1, "edit_file": 1, "run_command": 3, "finish": 1}
    assert record["diff"] == "+x" and record["messages"][-1]["content"] == "done."
    assert record["prompt_tokens"] + record["sampled_tokens"] == record["total_tokens"]
    nothing = records.episode_record(episode(conversation(), ending="infra"))
    assert nothing["visible_pass"] is None and nothing["first_edit_right"] is None


def test_the_effort_is_split_into_the_reports_six_quantities() -> None:
    made = whole()
    effort = records.effort_of(made, CODEC)
    assert effort.thinking_tokens == len("done.") and effort.final_message_tokens == len("bye")
    assert effort.tool_calls == 6 and effort.turns == 7
    results = [message.content for message in made.messages if message.role == "tool"]
    assert effort.tool_output_tokens == sum(len(CODEC.encode(text)) for text in results)
    parts = effort.thinking_tokens + effort.tool_calling_tokens + effort.final_message_tokens
    assert parts == sum(made.transcript.mask)


def test_effort_is_never_negative() -> None:
    """A text may encode to more tokens than were sampled, and a script's turn was not sampled."""
    made = episode([Message("user", "x")])
    made.messages.append(Message("assistant", "a long thought", (call("list_dir"),)))
    assert records.effort_of(made, CODEC).tool_calling_tokens == 0


def test_answers_belong_to_the_calls_of_their_own_turn() -> None:
    two = (call("list_dir"), call("search", query="x"))
    messages = [Message("assistant", calls=two), Message("tool", "one"), Message("tool", "two")]
    messages += [Message("assistant", calls=(*two, call("finish"))), Message("tool", "three")]
    answers = [(made.name, text) for made, text in records.calls_with_results(messages)]
    assert answers == [
        *(("list_dir", "one"), ("search", "two")),
        *(("list_dir", "three"), ("search", ""), ("finish", "")),
    ]
