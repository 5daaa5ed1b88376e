"""Functions and files come in one normal form, and what is left out is counted."""

import ast
from collections import Counter

import pytest

from composer2_jax.data.sources import collect, read_file

TEXT = '''
"""A module about nothing that has a rather long first docstring line, too long to be kept."""
class A:
    @property
    def size(self):
        """The size.

        And more than anyone wants to read.
        """
        # a comment
        if self.items   ==   None:
            return 0
        return len(self.items)

    def short(self): return 1

def outer(x):
    def inner(y):
        z = y + 1
        return z
    if x:
        return inner(x)
    return x
'''


def collected(text: str, excluded: tuple[str, ...] = ()):
    counts: Counter[str] = Counter()
    return collect([{"path": "m.py", "text": text}], frozenset(excluded), counts), counts


def test_functions_stand_alone_in_normal_form() -> None:
    sources, _ = collected(TEXT)
    by_name = {function.name: function.source for function in sources.functions}
    assert set(by_name) == {"size", "outer", "inner"}
    assert by_name["size"] == (
        'def size(self):\n    """The size."""\n    if self.items == None:\n        return 0\n'
        "    return len(self.items)"
    )


def test_a_file_keeps_its_decorators_and_loses_its_comments() -> None:
    (text,) = collected(TEXT)[0].files
    assert "@property" in text
    assert "a comment" not in text and "too long to be kept" not in text
    ast.parse(text)


def test_excluded_functions_are_in_no_function_and_no_file() -> None:
    sources, counts = collected(TEXT, ("inner", "size"))
    assert {function.name for function in sources.functions} == {"outer"}
    assert "def inner" not in sources.files[0] and "def size" not in sources.files[0]
    assert counts["functions_excluded_by_name"] == 2
    ast.parse(sources.files[0])


def test_a_block_emptied_by_exclusion_is_still_a_block() -> None:
    text = "class A:\n    def gone(self):\n        x = 1\n        return x\n"
    sources, _ = collected(text, ("gone",))
    assert sources.files == ["class A:\n    pass"]


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "x = " + "(" * 500 + ")" * 500])
def test_a_file_that_cannot_be_parsed_is_counted(text: str) -> None:
    sources, counts = collected(text)
    assert sources.files == [] and counts["files_unparsable"] == 1


def test_repeated_functions_and_tables_are_counted() -> None:
    sources, counts = collected(TEXT + TEXT.split("class A:")[1].replace("    def short", "    #"))
    assert counts["functions_repeated"] >= 1
    assert len({f.source for f in sources.functions}) == len(sources.functions)
    sources, counts = collected("table = " + repr(list(range(1000))))
    assert sources.files == [] and counts["files_of_tables"] == 1


def test_lines_are_counted_as_the_tools_count_them() -> None:
    # A form feed in a string ends a line for `splitlines`, not for an editor.
    _, functions, _ = read_file("m.py", "def f(x):\n    y = f'''a\x0cb{x}'''\n    return y\n")
    assert all(f.source.splitlines() == f.lines for f in functions)
