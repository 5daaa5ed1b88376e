"""Makes coding tasks: a small repository in which one function of the bank has one fault.

The functions are split by group of near twins, so that no function of a validation or held-out task
has a twin among the training tasks. Stands in for the report's environments at laptop size. What a
candidate was dropped for is always counted. Imported by
`data.coding_tasks` and `solver`; imports the standard library.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from composer2_jax.envs.evaluator import Evaluator
from composer2_jax.envs.functions import Function, load_bank
from composer2_jax.envs.mutation import Mutation, mutate
from composer2_jax.envs.renaming import rename_variables
from composer2_jax.envs.task import Task
from composer2_jax.errors import check_at_least, check_shares

TEST_FILE = "test.py"
TEST_COMMAND = "python3 -S test.py"
# Names of modules; none is a module of the standard library, which a file here would hide.
_MODULES = ("basics", "calc", "common", "core", "extra", "helpers", "misc", "ops", "tools", "util")


@dataclass(frozen=True)
class SynthesisConfig:
    """What tasks look like.

    train_share: share of the groups that training tasks use; the held-out share is the rest.
    validation_share: share of the groups that validation tasks use.
    rename_share: share of the tasks whose variables are renamed.
    neighbour_share: share of the tasks with a second function in the faulty file.
    max_modules: files beside the test file, at most.
    max_lines: lines of the faulty file, at most.
    inputs: sampled calls a task; all of them are hidden tests.
    min_inputs: fewest distinct calls that are still a test.
    min_failing: calls that a fault must change.
    visible: calls in the visible test file.
    prompt_chars: longest prompt.
    """

    train_share: float = 0.70
    validation_share: float = 0.12
    rename_share: float = 0.7
    neighbour_share: float = 0.2
    max_modules: int = 3
    max_lines: int = 24
    inputs: int = 32
    min_inputs: int = 8
    min_failing: int = 2
    visible: int = 5
    prompt_chars: int = 60

    def __post_init__(self) -> None:
        check_shares(self, "train_share", "validation_share", "rename_share", "neighbour_share")
        counts = ("max_modules", "max_lines", "inputs", "min_inputs", "min_failing", "visible")
        check_at_least(self, 1, *counts, "prompt_chars")


def split_groups(
    groups: Iterable[str], seed: int, config: SynthesisConfig
) -> dict[str, frozenset[str]]:
    """The groups of each split; another seed is another split."""
    order = sorted(set(groups))
    random.Random(f"groups/{seed}").shuffle(order)
    train = round(len(order) * config.train_share)
    validation = train + round(len(order) * config.validation_share)
    return {
        "train": frozenset(order[:train]),
        "validation": frozenset(order[train:validation]),
        "heldout": frozenset(order[validation:]),
    }


class Pool:
    """Makes the tasks of one file, all from the functions of one split.

    Candidate number n depends on the seed, the pool's name and n only. `seen` holds the faulty
    sources made so far; pools of one split share it, so that no task stands in two of them.
    `dropped` counts the candidates that became no task, by reason.
    """

    def __init__(
        self, name: str, split: str, seed: int, config: SynthesisConfig, seen: set[str]
    ) -> None:
        self.name, self.split, self.seed, self.config = name, split, seed, config
        self.dropped: Counter[str] = Counter()
        self._seen = seen
        groups = split_groups((f.group for f in load_bank()), seed, config)[split]
        self._functions = [f for f in load_bank() if f.group in groups]

    def tasks(self, count: int, evaluator: Evaluator) -> Iterator[Task]:
        """`count` tasks, or as many as forty candidates for each of them give."""
        made = 0
        for number in range(40 * count):
            if made == count:
                return
            rng = random.Random(f"{self.seed}/{self.name}/{number}")
            task = self._candidate(rng, evaluator)
            if isinstance(task, Task):
                yield replace(task, id=f"{self.name}-{made:05d}")
                made += 1
            else:
                self.dropped[task] += 1

    def remember(self, tasks: Iterable[Task]) -> None:
        """Keeps the faulty functions of tasks made earlier from being made again."""
        self._seen.update(faulty_function(task) for task in tasks)

    def _candidate(self, rng: random.Random, evaluator: Evaluator) -> Task | str:
        """A task, or the reason why this draw is none."""
        function = rng.choice(self._functions)
        right = function.source
        if rng.random() < self.config.rename_share:
            right = rename_variables(right, rng)
        mutation = mutate(right, rng)
        if mutation is None:
            return "no place for a fault"
        if mutation.source in self._seen:
            return "duplicate"
        files, module, first_line = self._repository(function, mutation.source, rng)
        if files[module].count("\n") > self.config.max_lines:
            return "file too long"
        calls = _sample_calls(function, self.config.inputs, rng)
        if len(calls) < self.config.min_inputs:
            return "too few distinct calls"
        expected, wrong = evaluator.outputs([right, mutation.source], calls)
        if isinstance(expected, str):
            return f"right function: {expected}"
        if isinstance(wrong, str):
            return f"faulty function: {wrong}"
        failing = [i for i in range(len(calls)) if wrong[i] != expected[i]]
        if len(failing) < self.config.min_failing:
            return "fault changes too little"
        shown = self._shown(calls, expected, wrong, failing, rng)
        if shown is None:
            return "prompt too long"
        prompt, visible = shown
        files[TEST_FILE] = _test_file(module, function.name, visible)
        self._seen.add(mutation.source)
        return Task(
            id="",
            split=self.split,
            files=files,
            prompt=prompt,
            test_command=TEST_COMMAND,
            hidden_calls=tuple(calls),
            hidden_expected=tuple(expected),
            module=module,
            function=function.name,
            group=function.group,
            fault_kind=mutation.kind,
            line=first_line + mutation.line - 1,
            fixed_line=mutation.fixed_line,
        )

    def _repository(
        self, function: Function, faulty: str, rng: random.Random
    ) -> tuple[dict[str, str], str, int]:
        """The module files, which of them is faulty, and the line its function begins at."""
        others = rng.sample(self._functions, self.config.max_modules + 1)
        others = [other for other in others if other.name != function.name]
        parts, first_line = [faulty], 1
        if rng.random() < self.config.neighbour_share:
            neighbour = others.pop().source
            if rng.random() < 0.5:
                parts.append(neighbour)
            else:
                parts.insert(0, neighbour)
                first_line = neighbour.count("\n") + 3
        names = rng.sample(_MODULES, rng.randint(1, self.config.max_modules))
        module = f"{names[0]}.py"
        files = {module: "\n\n".join(parts) + "\n"}
        for name, other in zip(names[1:], others, strict=False):
            files[f"{name}.py"] = other.source + "\n"
        return files, module, first_line

    def _shown(
        self,
        calls: list[str],
        expected: list[str],
        wrong: list[str],
        failing: list[int],
        rng: random.Random,
    ) -> tuple[str, list[tuple[str, str]]] | None:
        """The prompt and the visible cases, whose first failing one it quotes; None if too long."""
        prompts = {i: f"{calls[i]} is {wrong[i]} not {expected[i]}" for i in failing}
        short = [i for i in failing if len(prompts[i]) <= self.config.prompt_chars]
        if not short:
            return None
        quoted = rng.choice(sorted(short, key=lambda i: len(prompts[i]))[:3])
        rest = [i for i in range(len(calls)) if i != quoted]
        visible = rng.sample(rest, min(self.config.visible - 1, len(rest)))
        place = rng.randrange(len(visible) + 1)
        first_failing = next((p for p, i in enumerate(visible) if i in prompts), len(visible))
        visible.insert(min(place, first_failing), quoted)
        return prompts[quoted], [(calls[i], expected[i]) for i in visible]


def repaired(task: Task) -> Task:
    """The task with the right line in its place, as a perfect agent would leave it."""
    lines = task.files[task.module].splitlines(keepends=True)
    lines[task.line - 1] = task.fixed_line + "\n"
    return replace(task, files=task.files | {task.module: "".join(lines)})


def faulty_function(task: Task) -> str:
    """The source of the function with the fault, without its neighbour."""
    parts = task.files[task.module].removesuffix("\n").split("\n\n")
    return next(part for part in parts if part.startswith(f"def {task.function}("))


def fault_of(task: Task) -> Mutation:
    """The fault of a task, as `mutation` describes it."""
    source = task.files[task.module]
    faulty_line = source.splitlines()[task.line - 1]
    return Mutation(source, task.line, task.fault_kind, faulty_line, task.fixed_line)


def _sample_calls(function: Function, count: int, rng: random.Random) -> list[str]:
    """Up to `count` different calls."""
    calls: dict[str, None] = {}
    for _ in range(3 * count):
        calls[function.sample_call(rng)] = None
        if len(calls) == count:
            break
    return list(calls)


def _test_file(module: str, function: str, cases: list[tuple[str, str]]) -> str:
    asserts = "".join(f"assert {call} == {value}\n" for call, value in cases)
    return f"from {module.removesuffix('.py')} import {function}\n\n{asserts}"
