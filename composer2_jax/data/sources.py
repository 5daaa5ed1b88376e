"""Functions and whole files, in one normal form, from Python sources.

Everything goes through `ast.unparse`: comments fall away, spacing becomes uniform, and operators
become clean tokens. Docstrings are cut to their first line. The agent's tasks have the same form.
Imports the standard library only.
"""

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MIN_LINES, MAX_LINES = 3, 24
MAX_LINE_CHARS = 100
MAX_DOCSTRING_CHARS = 48
# A longer line is a table (character maps, help topics), from which no code is learned.
MAX_FILE_LINE_CHARS = 1000


@dataclass(frozen=True)
class Function:
    """A function on its own, without decorators; `path` is the file that it comes from."""

    path: str
    name: str
    source: str

    @property
    def lines(self) -> list[str]:
        return self.source.split("\n")


@dataclass(frozen=True)
class Sources:
    """What one split offers to learn from."""

    functions: list[Function]
    files: list[str]


def read_file(
    path: str, text: str, excluded: frozenset[str] = frozenset()
) -> tuple[str, list[Function], int]:
    """The normal form of a file, its functions of a fitting size, and how many were excluded.

    Functions named in `excluded` are taken out of both. Raises SyntaxError or ValueError.
    """
    with warnings.catch_warnings():
        # Old sources hold escapes that the compiler remarks on; they are read, not run.
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    removed = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _shorten_docstring(node)
        removed += _remove_functions(node, excluded)
    return ast.unparse(tree), list(_functions(path, tree)), removed


def collect(
    examples: Iterable[dict[str, str]], excluded: frozenset[str], counts: Counter[str]
) -> Sources:
    """The functions and files of a split, without functions named in `excluded` (those that
    reported tasks are about), repeated ones and tables. `counts` says how often."""
    functions: dict[str, Function] = {}
    files: list[str] = []
    for example in examples:
        try:
            text, found, removed = read_file(example["path"], example["text"], excluded)
        except (SyntaxError, ValueError, RecursionError):
            counts["files_unparsable"] += 1
            continue
        if max(map(len, text.split("\n"))) > MAX_FILE_LINE_CHARS:
            counts["files_of_tables"] += 1
        else:
            files.append(text)
        counts["functions_excluded_by_name"] += removed
        for function in found:
            counts["functions_repeated"] += function.source in functions
            functions.setdefault(function.source, function)
    return Sources(list(functions.values()), files)


def _functions(path: str, tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.end_lineno is None:
            continue
        if node.end_lineno - node.lineno > 4 * MAX_LINES:
            continue
        node.decorator_list = []
        source = ast.unparse(node)
        lines = source.split("\n")
        if lines != source.splitlines():
            continue  # a form feed or the like in a string: lines could not be numbered alike
        if MIN_LINES <= len(lines) <= MAX_LINES and max(map(len, lines)) <= MAX_LINE_CHARS:
            yield Function(path, node.name, source)


def _remove_functions(node: ast.AST, names: frozenset[str]) -> int:
    """Takes functions with one of `names` out of the blocks of `node`; returns their number."""
    removed = 0
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(node, block, None)
        if not names or not isinstance(statements, list):
            continue
        kept = [
            statement
            for statement in statements
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            or statement.name not in names
        ]
        removed += len(statements) - len(kept)
        if not kept and statements and not isinstance(node, ast.Module):
            kept = [ast.Pass()]
        setattr(node, block, kept)
    return removed


def _shorten_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> None:
    """Keeps the first line of a docstring, or nothing where that is no short sentence."""
    docstring = ast.get_docstring(node)
    if docstring is None:
        return
    first = docstring.strip().split("\n")[0].strip()
    if first and len(first) <= MAX_DOCSTRING_CHARS and first.isascii() and '"' not in first:
        node.body[0] = ast.Expr(ast.Constant(first))
    elif len(node.body) > 1:
        del node.body[0]
    else:
        node.body[0] = ast.Pass()
