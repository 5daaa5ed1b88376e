"""The argument kinds that the bank's signatures name, each with a sampler of small values.

A kind is an ordinary type to Python and to the type checker; synthesis reads its *name* from the
signature and draws arguments from `SAMPLERS`. The values are small and repeat often, so that a
fault at a boundary (`<` for `<=`) shows within a few dozen inputs. Leaf: imported by the bank.
"""

import random
from collections.abc import Callable
from typing import Any

Nat = int  # 0..12: lengths, counts, indices
Pos = int  # 1..9: divisors, steps, widths
Big = int  # 0..9999, of few distinct digits
Ints = list[int]  # up to five of -4..6
Nats = list[int]  # up to five of 0..6
Rise = list[int]  # as Ints, sorted
Some = list[int]  # as Ints, never empty
Word = str  # lower-case letters of a small alphabet
Text = str  # words, capitals, digits, spaces
Char = str  # one lower-case letter
Bits = str  # of '0' and '1'
Nest = str  # of '(' and ')'


def _ints(rng: random.Random, least: int = 0) -> list[int]:
    return [rng.randint(-4, 6) for _ in range(rng.randint(least, 5))]


def _letters(rng: random.Random, alphabet: str, least: int, most: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))


SAMPLERS: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda rng: rng.randint(-6, 12),
    "bool": lambda rng: rng.random() < 0.5,
    "Nat": lambda rng: rng.randint(0, 12),
    "Pos": lambda rng: rng.randint(1, 9),
    "Big": lambda rng: int(_letters(rng, "012579", 1, 4)),
    "Ints": _ints,
    "Nats": lambda rng: [rng.randint(0, 6) for _ in range(rng.randint(0, 5))],
    "Rise": lambda rng: sorted(_ints(rng)),
    "Some": lambda rng: _ints(rng, least=1),
    "Word": lambda rng: _letters(rng, "aabbcde", 0, 6),
    "Text": lambda rng: _letters(rng, "abeAB 1 2", 0, 7),
    "Char": lambda rng: rng.choice("abcde"),
    "Bits": lambda rng: _letters(rng, "01", 0, 6),
    "Nest": lambda rng: _letters(rng, "()", 0, 6),
}
