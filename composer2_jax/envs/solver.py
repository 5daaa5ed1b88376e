"""The scripted solver: plays tasks in the real environment, and its transcripts are for SFT.

It knows the fault, and is deliberately lazy: it often edits the wrong thing first, seldom tests,
and may give up after a failed test. A model trained on it learns the tools and the format; to
verify and to try again is left for RL to teach. Turns that would teach a mistake are marked as not
to be trained on. Imported by `data.coding_tasks`; imports the standard library.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.envs.fleet import EnvFleet, InfraError
from composer2_jax.envs.mutation import (
    Mutation,
    edit_fragment,
    fragile_lines,
    mutations_on_line,
)
from composer2_jax.envs.synthesis import fault_of
from composer2_jax.envs.task import Task
from composer2_jax.errors import UserError, check_at_least, check_shares

TRIES = 3


@dataclass(frozen=True)
class SolverConfig:
    """How the solver behaves; shares are probabilities.

    wrong_share: an edit is a wrong one.
    max_wrong: wrong edits an episode, at most.
    same_line_share: a wrong edit is on the right line.
    test_share: tests are run after an edit.
    retry_share: a failed test leads to an undo and another edit, else to the end.
    error_share: an edit is one that the tool refuses; the solver then looks again, perhaps at
        another line.
    look_share: before it looks at the line that it edits, the solver looks at another one, sees
        no fault and goes on, to the next one with the same probability; so a policy learns to tell
        a faulty line from a sound one.
    max_looks: such lines an episode, at most; none is looked at twice.
    train_wrong_views: also train on looking at a wrong line.
    graded_share: episodes whose hidden tests are run; the others end with `finish` untold, and
        their reward is whether the right line stands. How often the two disagree is counted.
    """

    wrong_share: float = 0.4
    max_wrong: int = 3
    same_line_share: float = 0.4
    test_share: float = 0.35
    retry_share: float = 0.7
    error_share: float = 0.0
    look_share: float = 0.0
    max_looks: int = 3
    train_wrong_views: bool = False
    graded_share: float = 0.1

    def __post_init__(self) -> None:
        shares = ("wrong_share", "same_line_share", "test_share", "retry_share", "look_share")
        check_shares(self, *shares, "graded_share")
        check_at_least(self, 0, "max_wrong", "max_looks")
        if not 0.0 <= self.error_share < 1.0:
            raise UserError(
                f"SolverConfig.error_share={self.error_share} must be at least 0 and below 1: "
                f"with nothing but refused edits an episode has no end"
            )


@dataclass(frozen=True)
class Turn:
    """One assistant turn of the script, and whether a model should learn it."""

    call: ToolCall
    trained: bool = True


@dataclass(frozen=True)
class Transcript:
    """A played episode. `trained` has one entry for each assistant message."""

    task_id: str
    messages: tuple[Message, ...]
    trained: tuple[bool, ...]
    reward: float
    graded: bool
    repaired: bool
    lost: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON form of a line of transcripts.jsonl."""
        return {
            "task_id": self.task_id,
            "messages": [message.to_dict() for message in self.messages],
            "trained": list(self.trained),
            "reward": self.reward,
            "graded": self.graded,
            "repaired": self.repaired,
            "lost": self.lost,
        }


Script = Generator[Turn, str, bool]  # gets the tool's answers, returns whether the fault is gone


def script(task: Task, rng: random.Random, config: SolverConfig) -> Script:
    """The solver's turns, up to and without `finish`."""
    yield Turn(_call("search"))
    yield Turn(_call("read_file"))
    fault = fault_of(task)
    repair = Mutation(task.files[task.module], task.line, "", task.fixed_line, fault.faulty_line)
    tried: set[tuple[int, str]] = set()
    sound = _sound_lines(fault, rng)[: config.max_looks]
    while True:
        edit = repair
        if len(tried) < config.max_wrong and rng.random() < config.wrong_share:
            edit = _wrong_edit(fault, tried, rng, config) or repair
        right = edit is repair
        learn_view = edit.line == fault.line or config.train_wrong_views
        while sound and rng.random() < config.look_share:
            yield Turn(_view(sound.pop()), config.train_wrong_views)
        yield Turn(_view(edit.line), learn_view)
        if rng.random() < config.error_share:
            yield Turn(_refused_edit(edit), False)
            continue
        tried |= set() if right else {(edit.line, edit.faulty_line)}
        old, new = edit_fragment(edit.fixed_line, edit.faulty_line)
        yield Turn(_call("edit_file", old=old, new=new), right)
        if rng.random() >= config.test_share:
            return right
        passed = (yield Turn(_call("run_command"))).startswith("exit 0")
        if passed or rng.random() >= config.retry_share:
            return right
        yield Turn(_call("undo_edit"))


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name, arguments)


def _view(line: int) -> ToolCall:
    return _call("read_file", line=f"{line}|")


def _sound_lines(fault: Mutation, rng: random.Random) -> list[int]:
    """The lines that have no fault and could have had one, in random order."""
    lines = sorted(fragile_lines(fault.source) - {fault.line})
    return rng.sample(lines, len(lines))


def _wrong_edit(
    fault: Mutation, tried: set[tuple[int, str]], rng: random.Random, config: SolverConfig
) -> Mutation | None:
    """Another plausible change of the faulty file; after a wrong line, of a line not yet seen."""
    lines = [fault.line]
    if rng.random() >= config.same_line_share:
        seen = {line for line, _ in tried}
        others = [n for n in range(1, fault.source.count("\n") + 2) if n not in seen | set(lines)]
        lines = [*rng.sample(others, len(others)), *lines]
    for line in lines:
        changes = [
            change
            for change in mutations_on_line(fault.source, line)
            if (line, change.faulty_line) not in tried
            and not (line == fault.line and change.faulty_line == fault.fixed_line)
        ]
        if changes:
            return rng.choice(changes)
    return None


def _refused_edit(edit: Mutation) -> ToolCall:
    """An edit of text that the line does not hold: its own new text, taken for the old."""
    old, new = edit_fragment(edit.faulty_line, edit.fixed_line)
    if old in edit.fixed_line:
        old = old + new
    return _call("edit_file", old=old, new=new)


def play(task: Task, fleet: EnvFleet, seed: int, config: SolverConfig) -> Transcript:
    """Plays one task; what the solver does depends on the seed and the task's id only.

    An episode that the machinery lost is played again from its start; `lost` counts those.
    """
    for lost in range(TRIES):
        try:
            return _play_once(task, fleet, seed, config, lost)
        except InfraError:
            if lost == TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _play_once(
    task: Task, fleet: EnvFleet, seed: int, config: SolverConfig, lost: int
) -> Transcript:
    rng = random.Random(f"solver/{seed}/{task.id}")
    graded = rng.random() < config.graded_share
    step = fleet.reset(task).result()
    episode = step.episode
    messages = list(step.messages)
    trained: list[bool] = []
    turns = script(task, rng, config)
    turn = next(turns)
    while True:
        message = Message("assistant", "", (turn.call,))
        step = fleet.step(episode, message).result()
        if step.done:
            raise RuntimeError(f"{task.id}: cut after {len(trained)} turns: raise max_turns")
        messages += [message, *step.messages]
        trained.append(turn.trained)
        try:
            turn = turns.send(step.messages[0].content)
        except StopIteration as end:
            repaired: bool = end.value
            break
    finish = Message("assistant", "", (_call("finish"),))
    reward = fleet.step(episode, finish).result().reward if graded else float(repaired)
    fleet.close_episode(episode)
    messages.append(finish)
    trained.append(True)
    return Transcript(task.id, tuple(messages), tuple(trained), reward, graded, repaired, lost)
