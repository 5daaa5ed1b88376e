"""The bank of functions: total on their inputs, breakable in several places, in groups of twins."""

import ast
import random

from composer2_jax.envs.evaluator import Evaluator
from composer2_jax.envs.functions import load_bank
from composer2_jax.envs.mutation import KINDS, mutations_on_line

BANK = load_bank()


def test_the_bank_has_many_groups_and_no_name_twice() -> None:
    assert len(BANK) >= 200
    assert len({function.group for function in BANK}) >= 100
    assert len({function.name for function in BANK}) == len(BANK)


def test_near_twins_share_a_group() -> None:
    group = {function.name: function.group for function in BANK}
    assert group["count_even"] == group["count_odd"]
    assert group["larger"] == group["max3"]
    assert group["larger"] != group["count_even"]


def test_every_function_takes_every_input_of_its_kinds() -> None:
    with Evaluator() as evaluator:
        for function in BANK:
            rng = random.Random(function.name)
            calls = [function.sample_call(rng) for _ in range(100)]
            [values] = evaluator.outputs([function.source], calls)
            assert isinstance(values, list), f"{function.name}: {values}"
            assert len(set(values)) > 1, f"{function.name} always gives {values[0]}"


def test_sources_are_short_normal_and_without_annotations() -> None:
    for function in BANK:
        lines = function.source.splitlines()
        assert 3 <= len(lines) <= 17, function.name
        assert ast.unparse(ast.parse(function.source)) == function.source
        assert lines[0].endswith("):") and ":" not in lines[0][:-1], lines[0]
        assert lines[1].startswith('    """') and lines[1].endswith('"""'), function.name


def test_every_function_can_be_broken_in_several_places() -> None:
    kinds: set[str] = set()
    for function in BANK:
        lines = range(1, function.source.count("\n") + 2)
        faults = [fault for line in lines for fault in mutations_on_line(function.source, line)]
        assert len({fault.source for fault in faults}) >= 3, function.name
        kinds |= {fault.kind for fault in faults}
    assert kinds == set(KINDS)
