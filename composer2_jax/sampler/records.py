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
    """Whether the first accepted edit turned the faulty line into the right one; None without edit."""
    focused = None
    for call, result in calls_with_results(messages):
        if call.name == "read_file" and not result.startswith("error"):
            wanted = call.arguments.get("line", "")
            focused = parse_lines(wanted)[0] if wanted else None
        if call.name == "edit_file" and result == "ok":
            faulty = task.files[task.module].split("\n")[task.line - 1]
            edited = faulty.replace(call.arguments["old"], call.arguments["new"], 1)
            return focused in (None, task.line) and edited == task.fixed_line
    return None


def statistics_of(episode: Episode) -> dict[str, float]:
    """Numbers of an episode by name; `first_edit_right` is absent when nothing was edited."""
    sampled = sum(episode.transcript.mask)
    tests = [
        result
        for call, result in calls_with_results(episode.messages)
        if call.name == "run_command" and not call.arguments.get("command")
    ]
    right = first_edit_right(episode.request.task, episode.messages)
    statistics = {
        "turns": episode.turns,
        "sampled_tokens": sampled,
        "total_tokens": len(episode.transcript),
        "tests_run": len(tests),
        "invalid_calls": episode.info.get("tool_errors", 0),
        "finished": float(episode.ending == "finish"),
        "seconds": round(episode.seconds, 3),
    }
    return statistics if right is None else {**statistics, "first_edit_right": float(right)}


def effort_of(episode: Episode, codec: Codec) -> Effort:
    """What the episode spent; text before a call counts as thinking."""
    turns = [message for message in episode.messages if message.role == "assistant"]
    results = [message for message in episode.messages if message.role == "tool"]
    thinking = sum(len(codec.encode(turn.content)) for turn in turns if turn.calls)
    final = sum(len(codec.encode(turn.content)) for turn in turns if not turn.calls)
    return Effort(
        thinking_tokens=thinking,
        tool_calling_tokens=sum(episode.transcript.mask) - thinking - final,
        tool_output_tokens=sum(len(codec.encode(result.content)) for result in results),
        final_message_tokens=final,
        tool_calls=sum(len(turn.calls) for turn in turns),
        turns=len(turns),
    )


def episode_record(episode: Episode) -> dict[str, Any]:
    """One line of episodes.jsonl: the task, the numbers, the whole conversation and the diff."""
    task = episode.request.task
    answers = list(calls_with_results(episode.messages))
    tests = [result for call, result in answers if call.name == "run_command"]
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
        "tool_counts": dict(Counter(call.name for call, _ in answers)),
        "messages": [message.to_dict() for message in episode.messages],
        "diff": episode.info.get("diff", ""),
    }
