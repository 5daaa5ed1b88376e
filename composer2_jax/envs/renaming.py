"""Renames a function's variables from small pools of synonyms, to make many files of few functions.

The renamed function does the same; its name stays, because calls and prompts use it. Imported by
`synthesis`; imports the standard library.
"""

import ast
import random

_POOLS = (
    "left",  # sides keep their names: half a renamed pair misleads
    "right",
    "top",
    "items values numbers data xs",
    "item element entry x v",
    "value number n x num v",
    "word text string s",
    "letter char c ch",
    "count total n amount k",
    "total result acc out",
    "result out output found answer",
    "best top record chosen",
    "index i k pos place",
    "i p left",
    "j q right",
    "a x first p",
    "b y second q",
    "c z third r",
    "first one left xs",
    "second two right ys",
    "low lower lo least",
    "high upper hi most",
    "limit bound cap most",
    "size length n width",
    "step stride part k",
    "steps moves shift times",
    "start begin origin",
    "end stop finish",
    "last previous before",
    "target goal wanted",
    "rest remainder left over",
    "run streak length",
    "gap space room diff",
    "other another peer",
    "money cash funds",
    "height level h",
    "width w wide",
    "row r line",
    "column col c",
    "bits digits code",
    "bit digit flag",
    "price cost fee",
    "prices costs fees",
    "depth level open_count",
    "day d today",
    "heights levels walls",
    "degrees warmth temps",
    "codes ops program",
)
_SYNONYMS: dict[str, tuple[str, ...]] = {}
for _pool in _POOLS:
    for _name in _pool.split():
        _SYNONYMS.setdefault(_name, tuple(_pool.split()))


def rename_variables(source: str, rng: random.Random) -> str:
    """The source with its variables drawn anew from their pools; never two of one name."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    parameters = [node.arg for node in nodes if isinstance(node, ast.arg)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    renamed: dict[str, str] = {}
    for name in [*parameters, *sorted(stored - set(parameters))]:
        taken = (used | set(renamed.values())) - {name}
        free = [other for other in _SYNONYMS.get(name, (name,)) if other not in taken]
        renamed[name] = rng.choice(free)
        used.add(renamed[name])
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = renamed.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = renamed[node.arg]
    return ast.unparse(tree)
