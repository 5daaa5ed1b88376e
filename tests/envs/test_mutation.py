"""Faults change one line in a known way; the edit that repairs them is small and unambiguous."""

import ast
import inspect
import random
import textwrap
from collections import Counter

import pytest

from composer2_jax.envs.functions import load_bank
from composer2_jax.envs.mutation import edit_fragment, mutate, mutations_on_line, occurrences


@pytest.mark.parametrize(
    ("line", "kind", "faulty"),
    [
        ("return a < b", "comparison", {"return a <= b", "return a > b"}),
        ("return a not in b", "comparison", {"return a in b"}),
        ("return 0 <= a < b", "comparison", {
            "return 0 < a < b", "return 0 >= a < b", "return 0 <= a <= b", "return 0 <= a > b",
        }),
        ("return a - b", "arithmetic", {"return a + b"}),
        ("return a % b", "arithmetic", {"return a // b"}),
        ("return a + b - 1", "arithmetic", {"return a - b - 1", "return a + b + 1"}),
        ("a += b", "augmented", {"a -= b"}),
        ("return 7", "constant", {"return 8", "return 6"}),
        ("return a and b", "logic", {"return a or b"}),
        ("return min(a, b)", "minmax", {"return max(a, b)"}),
        ("return not a", "negation", {"return a"}),
        ("return f(a, not b)", "negation", {"return f(a, b)"}),
        ("return a", "returned_name", {"return b"}),
        ("return True", "returned_truth", {"return False"}),
    ],
)  # fmt: skip
def test_each_kind_makes_just_its_own_changes(line: str, kind: str, faulty: set[str]) -> None:
    found = mutations_on_line(f"def g(a, b):\n    {line}", 2)
    assert {m.faulty_line.strip() for m in found if m.kind == kind} == faulty
    assert {m.fixed_line.strip() for m in found} == {line}


def test_truth_values_and_text_are_not_taken_for_integers() -> None:
    source = "def g(a):\n    'Add 1.'\n    return f(True, 'x1')"
    assert mutate(source, random.Random(0)) is None


def test_exactly_one_line_differs_and_it_is_the_one_named() -> None:
    for function in load_bank():
        mutation = mutate(function.source, random.Random(function.name))
        assert mutation is not None
        right, wrong = function.source.splitlines(), mutation.source.splitlines()
        changed = [
            n for n, pair in enumerate(zip(right, wrong, strict=True), 1) if len({*pair}) > 1
        ]
        assert changed == [mutation.line], function.name
        assert wrong[mutation.line - 1] == mutation.faulty_line
        assert right[mutation.line - 1] == mutation.fixed_line


def test_kinds_are_drawn_evenly_however_many_places_each_has() -> None:
    source = "def g(a):\n    return f(a < 1, 2, 3, 4, 5, 6, 7, 8, 9)"
    rng = random.Random(0)
    kinds = Counter(m.kind for m in (mutate(source, rng) for _ in range(400)) if m)
    # Drawn by place, comparisons would be some 40 of 400.
    assert 160 < kinds["comparison"] < 240


def test_real_library_functions_can_be_broken() -> None:
    source = textwrap.dedent(inspect.getsource(textwrap.TextWrapper._split_chunks))
    source += textwrap.dedent(inspect.getsource(textwrap.TextWrapper._wrap_chunks))
    rng = random.Random(0)
    normal = ast.unparse(ast.parse(source)).splitlines()
    for _ in range(20):
        mutation = mutate(source, rng)
        assert mutation is not None
        assert normal[mutation.line - 1] == mutation.fixed_line
        compile(mutation.source, "broken", "exec")


def test_the_fragment_of_every_fault_is_unambiguous_and_repairs_it() -> None:
    for function in load_bank():
        for line in range(1, function.source.count("\n") + 2):
            for fault in mutations_on_line(function.source, line):
                old, new = edit_fragment(fault.faulty_line, fault.fixed_line)
                assert old and new
                assert occurrences(fault.faulty_line, old) == 1
                assert fault.faulty_line.replace(old, new) == fault.fixed_line


@pytest.mark.parametrize(
    ("faulty", "fixed", "fragment"),
    [
        ("    if a <= b:", "    if a < b:", (" <=", " <")),
        ("    return x + x + 1", "    return x + x + 2", (" 1", " 2")),
        ("    a = 1 + 1", "    a = 1 + 2", (" + 1", " + 2")),
        ("    if inside:", "    if not inside:", (" inside", " not inside")),
        ("    return (a, b)", "    return (b, b)", ("a", "b")),
        ("    width = 10", "    width = 11", (" 10", " 11")),
        ("    x11 = 1", "    x11 = 2", (" 1", " 2")),
    ],
)
def test_the_fragment_is_whole_tokens_and_as_short_as_can_be(
    faulty: str, fixed: str, fragment: tuple[str, str]
) -> None:
    assert edit_fragment(faulty, fixed) == fragment


def test_overlapping_occurrences_count() -> None:
    assert occurrences("aaa", "aa") == 2
