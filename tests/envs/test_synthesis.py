"""Synthesised tasks: split by groups, reproducible, failing before the repair and passing after."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from composer2_jax.envs.evaluator import Evaluator
from composer2_jax.envs.functions import load_bank
from composer2_jax.envs.grading import grade_files
from composer2_jax.envs.renaming import rename_variables
from composer2_jax.envs.synthesis import (
    _MODULES,
    TEST_FILE,
    Pool,
    SynthesisConfig,
    faulty_function,
    repaired,
    split_groups,
)
from composer2_jax.envs.task import Task

CONFIG = SynthesisConfig()


def make(name: str, count: int, seen: set[str] | None = None, seed: int = 0) -> list[Task]:
    split = name if name in ("validation", "heldout") else "train"
    with Evaluator() as evaluator:
        return list(Pool(name, split, seed, CONFIG, seen or set()).tasks(count, evaluator))


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return make("sft", 60)


def test_no_group_is_in_two_splits_and_none_is_lost() -> None:
    groups = {function.group for function in load_bank()}
    splits = split_groups(groups, 0, CONFIG)
    assert sum(len(part) for part in splits.values()) == len(groups)
    assert frozenset().union(*splits.values()) == groups
    assert abs(len(splits["train"]) / len(groups) - 0.70) < 0.01
    assert abs(len(splits["validation"]) / len(groups) - 0.12) < 0.01
    assert splits["heldout"] != split_groups(groups, 1, CONFIG)["heldout"]


@pytest.mark.parametrize("name", ["rl", "validation", "heldout"])
def test_all_functions_of_a_task_are_of_its_split(name: str) -> None:
    group = {function.name: function.group for function in load_bank()}
    splits = split_groups(group.values(), 0, CONFIG)
    for task in make(name, 25):
        assert task.group == group[task.function]
        names = re.findall(r"^def (\w+)", "\n\n".join(task.files.values()), re.MULTILINE)
        assert {group[function] for function in names} <= splits[task.split]


def test_one_seed_makes_one_set_of_tasks(tasks: list[Task]) -> None:
    assert make("sft", 60) == tasks
    assert make("sft", 60, seed=1) != tasks


def test_pools_of_a_split_share_no_task_also_after_a_restart() -> None:
    with Evaluator() as evaluator:
        seen: set[str] = set()
        first = list(Pool("sft", "train", 0, CONFIG, seen).tasks(60, evaluator))
        # The same name draws the same candidates, so all of the first sixty would come again.
        second = Pool("sft", "train", 0, CONFIG, seen)
        other = list(second.tasks(60, evaluator))
        restarted = Pool("sft", "train", 0, CONFIG, set())
        restarted.remember(first)
        again = list(restarted.tasks(60, evaluator))
    sources = [faulty_function(task) for task in first + other]
    assert len(set(sources)) == 120
    assert second.dropped["duplicate"] >= 60
    assert again == other


def test_hidden_calls_tell_the_faulty_function_from_the_right_one(tasks: list[Task]) -> None:
    with Evaluator() as evaluator:
        for task in tasks:
            sources = [task.files[task.module], repaired(task).files[task.module]]
            wrong, right = evaluator.outputs(sources, task.hidden_calls)
            assert right == list(task.hidden_expected)
            assert sum(a != b for a, b in zip(wrong, right, strict=True)) >= CONFIG.min_failing


def test_the_sandbox_agrees_with_the_synthesis(tasks: list[Task]) -> None:
    for task in tasks[:4]:
        for variant, reward in ((task, 0.0), (repaired(task), 1.0)):
            tree = {path: text.encode() for path, text in variant.files.items()}
            assert grade_files(variant, tree).reward == reward


def test_visible_tests_fail_before_the_repair_and_pass_after(
    tasks: list[Task], tmp_path: Path
) -> None:
    for task in tasks[:4]:
        for variant, code in ((task, 1), (repaired(task), 0)):
            for path, text in variant.files.items():
                (tmp_path / path).write_text(text)
            command = [sys.executable, "-S", "-B", TEST_FILE]
            assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == code


def test_the_prompt_quotes_the_first_visible_case_that_fails(tasks: list[Task]) -> None:
    with Evaluator() as evaluator:
        for task in tasks:
            cases = re.findall(r"^assert (.*) == (.*)$", task.files[TEST_FILE], re.MULTILINE)
            assert len(cases) == CONFIG.visible
            [wrong] = evaluator.outputs([task.files[task.module]], [call for call, _ in cases])
            call, got, expected = next(
                (call, got, value)
                for (call, value), got in zip(cases, wrong, strict=True)
                if got != value
            )
            assert task.prompt == f"{call} is {got} not {expected}"
            assert len(task.prompt) <= CONFIG.prompt_chars
            assert {call for call, _ in cases} <= set(task.hidden_calls)


def test_the_named_line_is_the_faulty_one(tasks: list[Task]) -> None:
    neighbours = 0
    for task in tasks:
        text = task.files[task.module]
        assert text.splitlines()[task.line - 1] != task.fixed_line
        assert text.splitlines()[task.line - 1] in faulty_function(task).splitlines()
        assert text.count("\n") <= CONFIG.max_lines
        neighbours += text.count("\ndef ") + text.startswith("def ") - 1
    assert 0 < neighbours < 30


def test_what_is_dropped_is_counted_by_reason() -> None:
    with Evaluator() as evaluator:
        pool = Pool("sft", "train", 0, SynthesisConfig(min_failing=33), set())
        assert list(pool.tasks(2, evaluator)) == []
        assert sum(pool.dropped.values()) == 80
        assert pool.dropped["fault changes too little"] > 40
        short = Pool("sft", "train", 0, SynthesisConfig(prompt_chars=5), set())
        assert list(short.tasks(1, evaluator)) == []
        assert short.dropped["prompt too long"] > 20


def test_endless_and_greedy_functions_are_stopped_and_the_next_is_evaluated() -> None:
    fine = "def f(x):\n    return x + 1"
    endless = "def f(x):\n    while True:\n        x += 1"
    greedy = "def f(x):\n    return len('x' * (1 << 33))"
    deadly = "def f(x):\n    import os\n    os._exit(3)"
    with Evaluator() as evaluator:
        found = evaluator.outputs([endless, greedy, fine], ["f(1)", "f(2)"])
        assert found == ["timeout", "raises", ["2", "3"]]
        assert evaluator.outputs([deadly, fine], ["f(1)"]) == ["crash", "crash"]
        assert evaluator.outputs([fine], ["f(1)"]) == [["2"]]


def test_renamed_functions_do_the_same() -> None:
    changed = 0
    with Evaluator() as evaluator:
        for function in load_bank():
            rng = random.Random(function.name)
            renamed = rename_variables(function.source, rng)
            calls = [function.sample_call(rng) for _ in range(10)]
            before, after = evaluator.outputs([function.source, renamed], calls)
            assert before == after, renamed
            changed += renamed != function.source
    assert changed > 0.8 * len(load_bank())


def test_module_names_hide_no_module_of_the_interpreter() -> None:
    assert not set(_MODULES) & set(sys.stdlib_module_names)
