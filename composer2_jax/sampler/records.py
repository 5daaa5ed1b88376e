"""What is written down about an episode: numbers for logs, the whole conversation for readers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.agent.tool_schemas import parse_lines
from composer2_jax.envs.task import Task
from composer2_jax.sampler.rollout import Codec, Episode


@dataclasses.dataclass(frozen=True)
class Effort:
    """What an episode spent, in the six quantities of the length penalty (report, section 4.2)."""

    thinking_tokens: int = 0
    tool_calling_tokens: int = 0
    tool_output_tokens: int = 0
    final_message_tokens: int = 0
    tool_calls: int = 0
    turns: int = 0


def calls_with_results(messages: list[Message]) -> Iterator[tuple[ToolCall, str]]:
    """Each call of the conversation with the text that answered it ("" for a final call)."""
    for index, message in enumerate(messages):
        answers = messages[index + 1 : index + 1 + len(message.calls)]
        for offset, call in enumerate(message.calls):
            answered = offset < len(answers) and answers[offset].role == "tool"
            yield call, answers[offset].content if answered else ""


def first_edit_right(task: Task, messages: list[Message]) -> bool | None:
    """Whether the first accepted edit made the faulty file the right one; None without an edit.

    Follows the focus as the tools do: an edit applies within the lines last shown.
    """
    lines = task.files[task.module].split("\n")
    right = [*lines[: task.line - 1], task.fixed_line, *lines[task.line :]]
    first, last = 1, len(lines)
    for call, result in calls_with_results(messages):
        if call.name in ("search", "read_file") and not result.startswith("error"):
            wanted = call.arguments.get("line", "")
            first, last = parse_lines(wanted) if wanted else (1, len(lines))
        if call.name == "edit_file" and result == "ok":
            seen = "\n".join(lines[first - 1 : last])
            edited = seen.replace(call.arguments["old"], call.arguments["new"], 1).split("\n")
            return [*lines[: first - 1], *edited, *lines[last:]] == right
    return None


def own_test_results(messages: list[Message]) -> list[str]:
    """What the task's own tests answered, each time the agent ran them."""
    return [
        result
        for call, result in calls_with_results(messages)
        if call.name == "run_command" and not call.arguments.get("command")
    ]


def statistics_of(episode: Episode) -> dict[str, float]:
    """Numbers of an episode by name; `first_edit_right` is absent when nothing was edited."""
    sampled = sum(episode.transcript.mask)
    right = first_edit_right(episode.request.task, episode.messages)
    statistics = {
        "turns": episode.turns,
        "sampled_tokens": sampled,
        "total_tokens": len(episode.transcript),
        "tests_run": len(own_test_results(episode.messages)),
        "invalid_calls": episode.info.get("tool_errors", 0),
        "finished": float(episode.ending == "finish"),
        "seconds": round(episode.seconds, 3),
    }
    return statistics if right is None else {**statistics, "first_edit_right": float(right)}


def effort_of(episode: Episode, codec: Codec) -> Effort:
    """What the episode spent. Text before a call counts as thinking, the text of `finish` is the
    final message, and every other sampled token, a malformed turn's too, is tool calling.
    """
    turns = [message for message in episode.messages if message.role == "assistant"]
    results = [message for message in episode.messages if message.role == "tool"]
    thinking = sum(len(codec.encode(turn.content)) for turn in turns if turn.calls)
    last_words = [
        call.arguments.get("message", "")
        for turn in turns
        for call in turn.calls
        if call.name == "finish"
    ]
    final = sum(len(codec.encode(text)) for text in last_words)
    # Encoding a turn's text anew may take more tokens than were sampled.
    calling = max(sum(episode.transcript.mask) - thinking - final, 0)
    return Effort(
        thinking_tokens=thinking,
        tool_calling_tokens=calling,
        tool_output_tokens=sum(len(codec.encode(result.content)) for result in results),
        final_message_tokens=final,
        tool_calls=sum(len(turn.calls) for turn in turns),
        turns=len(turns),
    )


def episode_record(episode: Episode) -> dict[str, Any]:
    """One line of episodes.jsonl: the task, the numbers, the whole conversation and the diff."""
    task = episode.request.task
    calls = [call.name for call, _ in calls_with_results(episode.messages)]
    tests = own_test_results(episode.messages)
    statistics = statistics_of(episode)
    right = statistics.pop("first_edit_right", None)
    return {
        "task_id": task.id,
        "function": task.function,
        "group": task.group,
        "fault_kind": task.fault_kind,
        "sample": episode.request.tag[1],
        "reward": episode.reward,
        "ending": episode.ending,
        **statistics,
        "finished": episode.ending == "finish",
        "prompt_tokens": len(episode.transcript) - sum(episode.transcript.mask),
        "first_edit_right": None if right is None else bool(right),
        "visible_pass": tests[-1].startswith("exit 0") if tests else None,
        "tool_counts": dict(Counter(calls)),
        "messages": [message.to_dict() for message in episode.messages],
        "diff": episode.info.get("diff", ""),
    }
