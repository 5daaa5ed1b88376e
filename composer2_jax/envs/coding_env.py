"""One coding task as a `gymnasium.Env`: an action is an assistant message, an observation the
messages that answer it, the reward the verdict of the hidden tests on the final tree.

A malformed turn, an unknown tool or a failing tool never raises: the model reads what was wrong and
the episode goes on, so broken calls stay in training with whatever reward they earn. Only a failure
of the machinery raises, as `InfraError`. Imported by the fleet, tests and notebooks; imports the
standard library and gymnasium only.
"""

import dataclasses
import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from composer2_jax.agent.call_format import ParseError
from composer2_jax.agent.markers import TOOL_NAMES
from composer2_jax.agent.messages import MalformedMessage, Message
from composer2_jax.agent.prompts import PromptConfig, opening
from composer2_jax.envs import sandbox
from composer2_jax.envs.grading import Grade, grade
from composer2_jax.envs.sandbox import InfraError, Limits
from composer2_jax.envs.spaces import MessageSpace, MessagesSpace
from composer2_jax.envs.task import Task
from composer2_jax.envs.tools import State, call_tool, problem_with
from composer2_jax.envs.workspace import Workspace
from composer2_jax.errors import UserError, check_at_least

MessageDict = dict[str, Any]
Action = Message | ParseError | Mapping[str, Any]


@dataclass(frozen=True)
class EnvConfig:
    """How an episode is run.

    max_turns: assistant turns before the episode is cut (it is graded all the same).
    output_chars: budget of a command's output in its answer; 0 gives the exit status alone.
    search_hits: lines that a search prints.
    command_seconds, command_cpu_seconds: bounds of a command; 0 processor seconds = no own bound.
    remember_tests: answer the task's own tests from memory when they meet a tree they have met.
    diff: put the diff of the final tree into the last info.
    tools: the tools on offer.
    """

    max_turns: int = 16
    output_chars: int = 0
    search_hits: int = 1
    command_seconds: float = 5.0
    command_cpu_seconds: float = 0.0
    remember_tests: bool = False
    diff: bool = False
    tools: tuple[str, ...] = TOOL_NAMES
    prompt: PromptConfig = dataclasses.field(default_factory=PromptConfig)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "max_turns", "search_hits")
        check_at_least(self, 0.1, "command_seconds")
        check_at_least(self, 0, "output_chars", "command_cpu_seconds")
        unknown = sorted(set(self.tools) - set(TOOL_NAMES))
        if unknown:
            raise UserError(f"EnvConfig.tools: no tool {unknown[0]!r}; there are {TOOL_NAMES}")


class CodingEnv(gymnasium.Env[list[MessageDict], Action]):
    """An episode of one task. `reset(options={"task": task})` changes the task."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's contract)

    def __init__(self, task: Task, config: EnvConfig | None = None) -> None:
        sandbox.check()
        self.task = task
        self.config = config or EnvConfig()
        self.observation_space = MessagesSpace()
        self.action_space = MessageSpace(self.config.tools)
        self._state: State | None = None
        self._over = True
        self._turns = 0
        self._errors = 0
        self._counts: Counter[str] = Counter()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[MessageDict], dict[str, Any]]:
        """Starts the episode in a fresh workspace; returns the opening messages."""
        super().reset(seed=seed)
        self.task = (options or {}).get("task", self.task)
        self.close()
        limits = Limits(
            seconds=self.config.command_seconds, cpu_seconds=self.config.command_cpu_seconds
        )
        self._state = State(
            self.task,
            Workspace.of_task(self.task),
            limits,
            self.config.output_chars,
            self.config.search_hits,
            self.config.remember_tests,
        )
        self._over, self._turns, self._errors = False, 0, 0
        self._counts = Counter()
        messages = opening(
            self.task.prompt, sorted(self.task.files), self.config.prompt, self.config.tools
        )
        return [message.to_dict() for message in messages], self._info()

    def step(self, action: Action) -> tuple[list[MessageDict], float, bool, bool, dict[str, Any]]:
        """Runs one assistant turn. The last step of an episode carries the reward."""
        if self._over or self._state is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        self._turns += 1
        results, finished = self._run(action)
        observation = [Message("tool", _valid(text)).to_dict() for text in results]
        truncated = not finished and self._turns >= self.config.max_turns
        if not (finished or truncated):
            return observation, 0.0, False, False, self._info()
        reward, info = self._end()
        return observation, reward, finished, truncated, info

    def truncate(self) -> tuple[list[MessageDict], float, bool, bool, dict[str, Any]]:
        """Ends the episode from outside, when the model's context is full: graded as it stands."""
        if self._over or self._state is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        reward, info = self._end()
        return [], reward, False, True, info

    def close(self) -> None:
        if self._state is not None:
            self._state.workspace.close()
        self._state, self._over = None, True

    @property
    def workspace(self) -> Workspace:
        """The running episode's workspace."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("no episode: call reset")
        return self._state.workspace

    def _end(self) -> tuple[float, dict[str, Any]]:
        """Grades the final tree; returns the reward and the last info."""
        assert self._state is not None
        verdict = grade(self.task, self._state.workspace)
        if verdict.reward is None:
            raise InfraError(f"grading failed: {verdict.infra_error}")
        self._over = True
        return verdict.reward, {**self._info(), **self._last_info(verdict)}

    def _run(self, action: Action) -> tuple[list[str], bool]:
        """The tools' answers, and whether the agent finished. A bad turn runs nothing."""
        assert self._state is not None
        message, problem = as_turn(action)
        for call in message.calls:
            problem = problem or problem_with(call, self.config.tools)
        if problem:
            self._errors += 1
            self._counts["malformed"] += 1
            return [problem if problem.startswith("error:") else f"error: {problem}"], False
        results: list[str] = []
        for call in message.calls:
            self._counts[call.name] += 1
            if call.name == "finish":
                return results, True
            text, failed = call_tool(self._state, call)
            self._errors += failed
            results.append(text)
        return results, False

    def _info(self) -> dict[str, Any]:
        remembered = self._state.remembered if self._state else 0
        return {
            "task_id": self.task.id,
            "turns": self._turns,
            "tool_errors": self._errors,
            "counts": {**self._counts, "remembered_tests": remembered},
        }

    def _last_info(self, verdict: Grade) -> dict[str, Any]:
        assert self._state is not None
        info: dict[str, Any] = {
            "grade": dataclasses.asdict(verdict),
            "todo_open": sum(not item.startswith("[x]") for item in self._state.todo),
        }
        if self.config.diff:
            info["diff"] = tree_diff(self.task.files, self._state.workspace.files())
        return info


def _valid(text: str) -> str:
    """Text that UTF-8 can hold: names of files may be any bytes, and a call may quote anything."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def as_turn(action: Action) -> tuple[Message, str]:
    """The assistant message of an action, and what is wrong with it."""
    if isinstance(action, ParseError):
        action = action.as_message()
    try:
        message = action if isinstance(action, Message) else Message.from_dict(action)
    except MalformedMessage as error:
        return Message("assistant"), str(error)
    if message.role != "assistant":
        return Message("assistant"), f"a turn is an assistant message, not {message.role}"
    if message.error:
        return Message("assistant"), message.error
    return message, "" if message.calls else "no tool call"


def tree_diff(before: Mapping[str, str], after: Mapping[str, bytes]) -> str:
    """A unified diff of two trees, for people to read."""
    texts = {path: data.decode(errors="replace") for path, data in after.items()}
    lines: list[str] = []
    for path in sorted(before.keys() | texts.keys()):
        old, new = before.get(path, ""), texts.get(path, "")
        if old != new:
            pair = (old.splitlines(), new.splitlines())
            lines += difflib.unified_diff(*pair, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines)
