"""Faults: one small change on one line of a function.

Each kind of fault is a function that looks at one syntax node and yields the changes it offers
there. A fault is always seen after `ast.unparse`, so that right and wrong source differ in exactly
one line. Used by task synthesis, by the scripted solver (its wrong edits are faults too) and by the
pretraining documents that show a repair. Imports the standard library.
"""

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Change = tuple[ast.AST, str, Any]  # a node, one of its fields, the field's new value
Names = frozenset[str]


@dataclass(frozen=True)
class Mutation:
    """Faulty source, and what was done to which line (1-based)."""

    source: str
    line: int
    kind: str
    faulty_line: str
    fixed_line: str


_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
}


def _comparison(node: ast.AST, names: Names) -> Iterator[Change]:
    """`<` for `<=`, `==` for `!=`, `in` for `not in`."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                yield node, "ops", [*node.ops[:place], other(), *node.ops[place + 1 :]]


def _arithmetic(node: ast.AST, names: Names) -> Iterator[Change]:
    """`+` for `-`, `//` for `%`."""
    if isinstance(node, ast.BinOp):
        for other in _OPERATORS.get(type(node.op), ()):
            yield node, "op", other()


def _augmented(node: ast.AST, names: Names) -> Iterator[Change]:
    """`+=` for `-=`."""
    if isinstance(node, ast.AugAssign):
        for other in _OPERATORS.get(type(node.op), ()):
            yield node, "op", other()


def _constant(node: ast.AST, names: Names) -> Iterator[Change]:
    """An integer one too large or too small."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, "value", node.value + 1
        yield node, "value", node.value - 1


def _logic(node: ast.AST, names: Names) -> Iterator[Change]:
    """`and` for `or`."""
    if isinstance(node, ast.BoolOp):
        yield node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _minmax(node: ast.AST, names: Names) -> Iterator[Change]:
    """`min` for `max`."""
    if isinstance(node, ast.Name) and node.id in ("min", "max"):
        yield node, "id", "max" if node.id == "min" else "min"


def _negation(node: ast.AST, names: Names) -> Iterator[Change]:
    """A lost `not`."""
    for field, value in ast.iter_fields(node):
        if _is_not(value):
            yield node, field, value.operand
        elif isinstance(value, list):
            for place, part in enumerate(value):
                if _is_not(part):
                    yield node, field, [*value[:place], part.operand, *value[place + 1 :]]


def _returned_name(node: ast.AST, names: Names) -> Iterator[Change]:
    """Another variable returned."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
        for name in sorted(names - {node.value.id}):
            yield node.value, "id", name


def _returned_truth(node: ast.AST, names: Names) -> Iterator[Change]:
    """`True` returned for `False`."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
        if isinstance(node.value.value, bool):
            yield node.value, "value", not node.value.value


def _is_not(node: Any) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


KINDS: dict[str, Callable[[ast.AST, Names], Iterator[Change]]] = {
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "augmented": _augmented,
    "constant": _constant,
    "logic": _logic,
    "minmax": _minmax,
    "negation": _negation,
    "returned_name": _returned_name,
    "returned_truth": _returned_truth,
}


def mutate(source: str, rng: random.Random) -> Mutation | None:
    """One fault, its kind drawn uniformly from those the source offers; None if it offers none.

    The right source, to which `fixed_line` belongs, is `ast.unparse(ast.parse(source))`.
    """
    tree = ast.parse(source)
    right = ast.unparse(tree).splitlines()
    offers = _offers(tree)
    while offers:
        kind = rng.choice(sorted(offers))
        change = offers[kind].pop(rng.randrange(len(offers[kind])))
        if not offers[kind]:
            del offers[kind]
        if mutation := _apply(tree, right, kind, change):
            return mutation
    return None


def mutations_on_line(source: str, line: int) -> list[Mutation]:
    """Every fault that one line (1-based) of an unparsed source offers."""
    tree = ast.parse(source)
    right = ast.unparse(tree).splitlines()
    found = [
        _apply(tree, right, kind, change)
        for kind, changes in _offers(tree).items()
        for change in changes
        if getattr(change[0], "lineno", 0) == line
    ]
    return [mutation for mutation in found if mutation and mutation.line == line]


def fragile_lines(source: str) -> set[int]:
    """The lines (1-based) of an unparsed source on which a fault could be made."""
    offers = _offers(ast.parse(source)).values()
    return {getattr(node, "lineno", 0) for changes in offers for node, *_ in changes} - {0}


def _offers(tree: ast.AST) -> dict[str, list[Change]]:
    """The changes each kind offers; kinds that offer none are left out."""
    nodes = list(ast.walk(tree))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and _is_stored(node)}
    names = frozenset(stored | {node.arg for node in nodes if isinstance(node, ast.arg)})
    offers = {
        kind: [c for node in nodes for c in find(node, names)] for kind, find in KINDS.items()
    }
    return {kind: changes for kind, changes in offers.items() if changes}


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _apply(tree: ast.AST, right: list[str], kind: str, change: Change) -> Mutation | None:
    """The mutation of a change, or None if not exactly one line differs; leaves the tree alone."""
    node, field, value = change
    before = getattr(node, field)
    setattr(node, field, value)
    source = ast.unparse(tree)
    setattr(node, field, before)
    wrong = source.splitlines()
    changed = [i for i, pair in enumerate(zip(right, wrong, strict=False)) if pair[0] != pair[1]]
    if len(right) != len(wrong) or len(changed) != 1:
        return None
    return Mutation(source, changed[0] + 1, kind, wrong[changed[0]], right[changed[0]])


# A token with the space before it; the indent is a token of its own.
_TOKEN = re.compile(
    r"^\s+|\s*(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\w+|[-+*/%<>=!&|^]+|[^\s\w])|\s+"
)


def edit_fragment(faulty_line: str, fixed_line: str) -> tuple[str, str]:
    """The shortest `(old, new)` of whole tokens that turns one line into the other.

    `old` is never empty and occurs exactly once in the faulty line, so that an edit which replaces
    it is never ambiguous: where the difference alone is not enough, tokens around it are added.
    """
    faulty, fixed = _TOKEN.findall(faulty_line), _TOKEN.findall(fixed_line)
    if faulty == fixed:
        raise ValueError("the two lines are the same")
    head, shortest = 0, min(len(faulty), len(fixed))
    while head < shortest and faulty[head] == fixed[head]:
        head += 1
    tail = 0
    while tail < shortest - head and faulty[-1 - tail] == fixed[-1 - tail]:
        tail += 1
    for extra in range(head + tail + 1):
        for left in range(max(0, extra - tail), min(extra, head) + 1):
            right = extra - left
            old = "".join(faulty[head - left : len(faulty) - tail + right])
            new = "".join(fixed[head - left : len(fixed) - tail + right])
            if old and new and occurrences(faulty_line, old) == 1:
                return old, new
    return faulty_line, fixed_line


def occurrences(text: str, part: str) -> int:
    """How often `part` stands in `text`, overlapping ones counted."""
    return sum(text.startswith(part, place) for place in range(len(text)))
