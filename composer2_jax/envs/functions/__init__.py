"""The bank: small pure functions that tasks break, in groups of near twins.

The functions are ordinary source files beside this one, by theme. A comment `# group: NAME` opens a
group: what follows up to the next such comment is too alike to stand on both sides of a
train/held-out split. A signature names, for each parameter, a kind of `kinds.SAMPLERS`. Stands in
for the report's mined repositories at a size that a laptop learns from. Imported by `synthesis`.
"""

import ast
import functools
import random
import re
from dataclasses import dataclass
from pathlib import Path

from composer2_jax.envs.functions.kinds import SAMPLERS

_GROUP = re.compile(r"# group: (\w+)$")
_NOT_BANK = {"__init__.py", "kinds.py"}


@dataclass(frozen=True)
class Function:
    """One function; `source` has no annotations, since agents read it and tokens are dear."""

    name: str
    group: str
    source: str
    kinds: tuple[str, ...]

    def sample_call(self, rng: random.Random) -> str:
        """A call with drawn arguments, as an expression: "clamp(5, 0, 3)"."""
        arguments = ", ".join(repr(SAMPLERS[kind](rng)) for kind in self.kinds)
        return f"{self.name}({arguments})"


@functools.cache
def load_bank() -> tuple[Function, ...]:
    """All functions, in the order of the files' names and lines."""
    folder = Path(__file__).parent
    paths = sorted(path for path in folder.glob("*.py") if path.name not in _NOT_BANK)
    return tuple(function for path in paths for function in _read(path))


def _read(path: Path) -> list[Function]:
    text = path.read_text(encoding="utf-8")
    group_at = {
        number: match[1]
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _GROUP.match(line))
    }
    functions = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            opened = max(line for line in group_at if line < node.lineno)
            kinds = tuple(_kind(argument) for argument in node.args.args)
            source = ast.unparse(ast.fix_missing_locations(_Plain().visit(node)))
            functions.append(Function(node.name, group_at[opened], source, kinds))
    return functions


def _kind(argument: ast.arg) -> str:
    if not isinstance(argument.annotation, ast.Name) or argument.annotation.id not in SAMPLERS:
        raise ValueError(f"line {argument.lineno}: parameter {argument.arg} has no known kind")
    return argument.annotation.id


class _Plain(ast.NodeTransformer):
    """Takes the annotations off a function."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign:
        assert node.value is not None
        return ast.Assign([node.target], node.value)
