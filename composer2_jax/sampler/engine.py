"""Continuous batching over a slotted latent cache.

Every sequence owns a cache slot for its whole life, so a turn only prefills what the environment
added. A step either prefills pending tokens of a few sequences or decodes one token for all that
are sampling; both are the same compiled function at a few fixed shapes, so nothing recompiles in
steady state. Weights may be replaced between any two steps (in-flight update): the cache is kept,
and every sampled token carries the version that produced it (report, section 4.2).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence as Tokens
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from composer2_jax.errors import UserError, check_at_least
from composer2_jax.model.config import ModelConfig
from composer2_jax.model.decoding import (
    Cache,
    DecodingWeights,
    append,
    decoding_weights,
    extend,
    init_cache,
)
from composer2_jax.model.transformer import Variables
from composer2_jax.sampler.sampling import draw


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    """`slots` sequences of up to `max_length` tokens live at once.

    `prefill_shapes` lists the (rows, tokens) of a prefill step: many short answers of tools, or
    few long ones. `decode_rows` lists the batch sizes that decoding is compiled for (the smallest
    that holds all sampling sequences is used), `length_buckets` the cache lengths that attention
    looks at.
    """

    slots: int = 64
    max_length: int = 384
    prefill_shapes: tuple[tuple[int, int], ...] = ((32, 8), (8, 32))
    decode_rows: tuple[int, ...] = (16, 32, 64)
    length_buckets: tuple[int, ...] = (128, 192, 256, 384)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "slots", "prefill_shapes", "decode_rows", "length_buckets")
        check_at_least(self, 2, "max_length")
        check_at_least(self, 0, "temperature")
        if max(self.decode_rows) < self.slots:
            raise UserError("SamplerConfig.decode_rows must reach SamplerConfig.slots")
        if max(self.length_buckets) < self.max_length:
            raise UserError("SamplerConfig.length_buckets must reach SamplerConfig.max_length")


@dataclasses.dataclass(eq=False)
class Turn:
    """What one turn of a sequence sampled; `stop` is "stop", "turn_length" or "context"."""

    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)
    stop: str = ""


@dataclasses.dataclass(eq=False)
class Sequence:
    """One live sequence. `pending` are tokens not yet in the cache, `length` those that are."""

    seed: int
    slot: int
    stop_ids: frozenset[int]
    max_turn_tokens: int
    length: int = 0
    last: int = -1
    pending: deque[int] = dataclasses.field(default_factory=deque)
    turn: Turn = dataclasses.field(default_factory=Turn)


class Engine:
    """Not thread-safe: one thread owns it. `version` is that of the weights in use."""

    def __init__(self, model: ModelConfig, config: SamplerConfig):
        if config.max_length > model.max_length:
            raise UserError(
                f"SamplerConfig.max_length={config.max_length} exceeds "
                f"ModelConfig.max_length={model.max_length}"
            )
        self.model, self.config = model, config
        self.version = -1
        self._weights: DecodingWeights | None = None
        # Slot `slots` is scratch: rows that only fill up a batch read and write there.
        self._cache = init_cache(model, config.slots + 1, config.max_length)
        self._free = list(range(config.slots))
        self._prefilling: dict[int, Sequence] = {}
        self._sampling: dict[int, Sequence] = {}

    def set_weights(self, variables: Variables, version: int) -> None:
        """Swaps the weights between two steps; sequences under way go on with the new ones."""
        if version <= self.version:
            raise ValueError(f"weight version {version} does not follow {self.version}")
        trunk = {name: leaf for name, leaf in variables["params"].items() if name != "mtp"}
        self._weights = _cut(self.model, {"params": trunk, "router": variables["router"]})
        self.version = version

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._prefilling or self._sampling)

    def open(self, seed: int, stop_ids: Tokens[int], max_turn_tokens: int) -> Sequence:
        """Takes a slot for a new sequence; the caller checks `free_slots` first."""
        return Sequence(seed, self._free.pop(), frozenset(stop_ids), max_turn_tokens)

    def close(self, sequence: Sequence) -> None:
        """Gives the slot back. What the cache holds there is overwritten by its next owner."""
        assert sequence.slot not in self._free, "a sequence was closed twice"
        self._prefilling.pop(sequence.slot, None)
        self._sampling.pop(sequence.slot, None)
        self._free.append(sequence.slot)

    def submit(self, sequence: Sequence, tokens: Tokens[int]) -> bool:
        """Appends the harness's tokens and starts a turn; False if the context has no room."""
        sequence.turn = Turn()
        room = self.config.max_length - sequence.length - len(sequence.pending) - len(tokens)
        if room < 1:
            sequence.turn.stop = "context"
            return False
        sequence.pending.extend(tokens)
        self._prefilling[sequence.slot] = sequence
        return True

    def step(self) -> list[Sequence]:
        """One compiled call; returns the sequences whose turn ended with it."""
        if self._weights is None:
            raise RuntimeError("the engine has no weights yet")
        prefill = self._choose_prefill()
        if prefill is not None:
            return self._advance(*prefill)
        if self._sampling:
            sequences = list(self._sampling.values())
            rows = min(n for n in self.config.decode_rows if n >= len(sequences))
            return self._advance(sequences, rows, 1)
        return []

    def _choose_prefill(self) -> tuple[list[Sequence], int, int] | None:
        """The prefill step to do now, if any: sequences, rows and tokens a row.

        The shape that feeds the most tokens wins, with the longest waiting texts in it. While few
        tokens wait and much is sampling, decoding goes first.
        """
        if not self._prefilling:
            return None
        by_need = sorted(self._prefilling.values(), key=lambda sequence: -len(sequence.pending))
        options = [(by_need[:rows], rows, chunk) for rows, chunk in self.config.prefill_shapes]
        best = max(options, key=_tokens_fed)
        _, rows, chunk = best
        if len(self._sampling) > len(self._prefilling) and 2 * _tokens_fed(best) < rows * chunk:
            return None
        return best

    def _advance(self, sequences: list[Sequence], rows: int, chunk: int) -> list[Sequence]:
        batch = _Batch.of(sequences, rows, chunk, scratch=self.config.slots)
        longest = max(sequence.length for sequence in sequences)
        drawn, logprobs, self._cache = _advance(
            self.model,
            self.config.temperature,
            min(n for n in self.config.length_buckets if n >= longest),
            self._weights,
            self._cache,
            batch,
        )
        drawn, logprobs = np.asarray(drawn), np.asarray(logprobs)
        finished = []
        for row, sequence in enumerate(sequences):
            count = int(batch.lengths[row])
            sequence.length += count
            sequence.last = int(batch.tokens[row, count - 1])
            for _ in range(count):
                sequence.pending.popleft()
            if sequence.pending:
                continue
            self._prefilling.pop(sequence.slot, None)
            self._sampling[sequence.slot] = sequence
            if self._sampled(sequence, int(drawn[row]), float(logprobs[row])):
                del self._sampling[sequence.slot]
                finished.append(sequence)
        return finished

    def _sampled(self, sequence: Sequence, token: int, logprob: float) -> bool:
        """Books one drawn token; it enters the cache with the sequence's next call."""
        turn = sequence.turn
        turn.tokens.append(token)
        turn.logprobs.append(logprob)
        turn.versions.append(self.version)
        sequence.pending.append(token)
        if token in sequence.stop_ids:
            turn.stop = "stop"
        elif len(turn.tokens) >= sequence.max_turn_tokens:
            turn.stop = "turn_length"
        elif sequence.length + 2 > self.config.max_length:
            turn.stop = "context"
        return bool(turn.stop)


def _tokens_fed(step: tuple[list[Sequence], int, int]) -> int:
    sequences, _, chunk = step
    return sum(min(len(sequence.pending), chunk) for sequence in sequences)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["slots", "tokens", "previous", "starts", "lengths", "seeds"],
    meta_fields=[],
)
@dataclasses.dataclass
class _Batch:
    """Host arrays of one call; rows beyond the real sequences point at the scratch slot."""

    slots: Any  # Int [B]
    tokens: Any  # Int [B T]
    previous: Any  # Int [B]
    starts: Any  # Int [B]
    lengths: Any  # Int [B]
    seeds: Any  # Int [B]

    @classmethod
    def of(cls, sequences: list[Sequence], rows: int, chunk: int, scratch: int) -> _Batch:
        batch = cls(
            slots=np.full(rows, scratch, np.int32),
            tokens=np.zeros((rows, chunk), np.int32),
            previous=np.full(rows, -1, np.int32),
            starts=np.zeros(rows, np.int32),
            lengths=np.zeros(rows, np.int32),
            seeds=np.zeros(rows, np.int32),
        )
        for row, sequence in enumerate(sequences):
            head = [sequence.pending[i] for i in range(min(chunk, len(sequence.pending)))]
            batch.slots[row] = sequence.slot
            batch.tokens[row, : len(head)] = head
            batch.previous[row] = sequence.last
            batch.starts[row] = sequence.length
            batch.lengths[row] = len(head)
            batch.seeds[row] = sequence.seed
        return batch


_cut = jax.jit(decoding_weights, static_argnums=0)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4,))
def _advance(
    model: ModelConfig,
    temperature: float,
    visible: int,
    weights: DecodingWeights,
    cache: Cache,
    batch: _Batch,
) -> tuple[Int[Array, "B"], Float[Array, "B"], Cache]:
    """Feeds each row's tokens, draws its next one, and writes only the new cache entries back."""
    seen = jax.tree.map(lambda leaf: leaf[batch.slots, :visible], cache)
    logits, entries, _ = extend(
        model, weights, seen, batch.tokens, batch.previous, batch.starts, batch.lengths
    )
    cache = append(cache, entries, batch.slots, batch.starts)
    tokens, logprobs = draw(logits, batch.seeds, batch.starts + batch.lengths, temperature)
    return tokens, logprobs, cache
