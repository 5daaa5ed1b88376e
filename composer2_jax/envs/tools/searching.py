"""Ranked search over the lines of the repository: BM25 on identifiers and their parts.

A line that defines a name of the query counts for more, and test files come after the rest: the
question is where the code is, not where it is used. Imports the standard library only.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping

from composer2_jax.envs.task import is_test_path
from composer2_jax.envs.tools.state import Focus, State, ToolError

SATURATION, LENGTH_WEIGHT = 1.2, 0.5
DEFINITION_WEIGHT = 3.0  # of a word as rare as can be
WORD = re.compile(r"[A-Za-z_]\w*|\d+")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
DEFINITION = re.compile(r"\s*(?:async\s+)?(?:def|class|func|fn|function|struct)\s+(\w+)")


def search(state: State, arguments: Mapping[str, str]) -> str:
    """The best lines as "path:LINE|text"; the best file becomes the focus."""
    query = arguments.get("query") or state.task.prompt
    places: list[tuple[str, int, str]] = []
    for path, data in sorted(state.workspace.files().items()):
        if b"\0" not in data:
            lines = data.decode(errors="replace").split("\n")
            places += [(path, number, line) for number, line in enumerate(lines, 1)]
    scores = rank([line for _, _, line in places], query)
    found = [i for i, score in enumerate(scores) if score > 0]
    found.sort(key=lambda i: (is_test_path(places[i][0]), -scores[i]))
    if not found:
        raise ToolError("nothing found")
    state.focus = Focus(places[found[0]][0])
    hits = (places[i] for i in found[: state.search_hits])
    return "\n".join(f"{path}:{number}|{line.strip()}" for path, number, line in hits)


def words(text: str) -> list[str]:
    """Identifiers and numbers, and the parts of compound identifiers, in lower case."""
    found: list[str] = []
    for word in WORD.findall(text):
        parts = PART.findall(word)
        found.append(word.lower())
        if len(parts) > 1:
            found += [part.lower() for part in parts]
    return found


def rank(lines: list[str], query: str) -> list[float]:
    """The BM25 score of each line, with definitions of the query's names weighted up."""
    counts = [Counter(words(line)) for line in lines]
    holding = Counter(word for count in counts for word in count)
    average = sum(count.total() for count in counts) / max(1, len(counts))
    asked = set(words(query))
    names = set(WORD.findall(query))
    scores: list[float] = []
    for line, count in zip(lines, counts, strict=True):
        length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * count.total() / max(average, 1e-9)
        score = 0.0
        for word in asked & count.keys():
            rarity = math.log(1 + (len(lines) - holding[word] + 0.5) / (holding[word] + 0.5))
            score += rarity * count[word] / (count[word] + SATURATION * length)
        definition = DEFINITION.match(line)
        if definition and definition[1] in names:
            score += DEFINITION_WEIGHT * math.log(1 + len(lines))
        scores.append(score)
    return scores
