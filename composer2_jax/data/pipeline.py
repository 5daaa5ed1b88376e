"""Packed training batches from token files, with Grain.

Each epoch of a task is shuffled anew and globally, tasks are mixed by example, rows are filled by
best fit with whole documents, and the position is a small JSON-able state: the batches after
`set_state` are those of the run that was never stopped. The order depends on the seed alone, not
on threads. Report: the data side of every next-token phase. Imported by `train` and `evals`;
imports no TensorFlow.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import grain
import numpy as np

from composer2_jax.data.store import TokenFile
from composer2_jax.errors import UserError

Batch = dict[str, np.ndarray]

# Open rows while packing: more fill the rows better, but mix documents over a longer stretch.
PACKING_BINS = 256


class Chunks:
    """The documents of a token file as pieces of at most `length` tokens.

    A long text is split, never trimmed. A conversation may not be cut, since a half of it asks for
    actions whose reasons are gone: one that does not fit is an error with a remedy.
    """

    def __init__(self, tokens_dir: Path, task: str, split: str, length: int):
        self._file = TokenFile(tokens_dir, task, split)
        lengths = self._file.lengths
        if self._file.metadata["whole"] and lengths.max() > length:
            raise UserError(
                f"task {task}: a conversation of {lengths.max()} tokens does not fit in rows of "
                f"{length}; use longer rows or a smaller prepare_data.max_conversation_tokens"
            )
        pieces = -(-lengths // length)
        self._document = np.repeat(np.arange(len(lengths)), pieces)
        first_piece = np.repeat(np.cumsum(pieces) - pieces, pieces)
        self._start = (np.arange(len(self._document)) - first_piece) * length
        self._length = length
        self._name = f"{task}/{split}/{length}"

    def __len__(self) -> int:
        return len(self._document)

    def __getitem__(self, index: int) -> Batch:
        start = int(self._start[index])
        ids, trained = self._file[self._document[index]]
        trained = trained[start : start + self._length].copy()
        # The first token of a segment has nothing before it to be predicted from.
        trained[:1] = 0
        return {"tokens": ids[start : start + self._length], "loss_mask": trained}

    def __repr__(self) -> str:
        # Grain compares this text when a state is restored: no memory addresses in it.
        return f"Chunks({self._name})"


def train_iterator(
    tokens_dir: str | Path,
    mixture: Mapping[str, float],
    rows: int,
    length: int,
    seed: int,
    split: str = "train",
    packing_bins: int = PACKING_BINS,
    threads: int = 2,
) -> grain.DatasetIterator:
    """Endless batches of `rows` x `length`; `get_state()` and `set_state()` resume exactly."""
    shares = {task: float(share) for task, share in sorted(mixture.items()) if share > 0}
    if not shares:
        raise UserError("train_iterator.mixture: no task has a share above 0")
    tasks = [
        grain.MapDataset.source(Chunks(Path(tokens_dir), task, split, length))
        # A seed of its own: the order of a task does not change with what it is mixed with.
        .seed(zlib.crc32(f"{task}:{seed}".encode()))
        .shuffle()
        .repeat()
        for task in shares
    ]
    mixed = grain.MapDataset.mix(tasks, weights=list(shares.values()))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=64 if threads else 0)
    packed = _packed(mixed.to_iter_dataset(options), length, packing_bins, seed, shuffle=True)
    return iter(packed.batch(rows, drop_remainder=True))


def eval_batches(
    tokens_dir: str | Path,
    task: str,
    split: str,
    rows: int,
    length: int,
    limit: int | None = None,
) -> list[Batch]:
    """The first `limit` batches of a split in a fixed order; padding fills up the last one."""
    chunks = grain.MapDataset.source(Chunks(Path(tokens_dir), task, split, length))
    dataset = chunks.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    packed = _packed(dataset, length, PACKING_BINS, seed=0, shuffle=False)
    batches: list[Batch] = []
    for batch in packed.batch(rows, drop_remainder=False):
        missing = rows - len(batch["tokens"])
        batches.append({k: np.pad(v, ((0, missing), (0, 0))) for k, v in batch.items()})
        if len(batches) == limit:
            break
    return batches


def read_mixture(data_dir: str | Path, name: str) -> dict[str, float]:
    """The shares of a mixture, as `prepare_data` wrote them down."""
    path = Path(data_dir) / "mixtures.json"
    try:
        mixtures = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with prepare_data") from error
    if name not in mixtures:
        raise UserError(f"{path}: no mixture {name!r}; there are {sorted(mixtures)}")
    return mixtures[name]


def vocabulary_size(tokens_dir: str | Path, splits: Iterable[tuple[str, str]]) -> int:
    """The size of the vocabulary that these (task, split) were written with.

    Raises UserError where two of them are of different tokenizers.
    """
    found: dict[tuple[int, str], str] = {}
    for task, split in splits:
        metadata = TokenFile(Path(tokens_dir), task, split).metadata
        found[metadata["vocab_size"], metadata["tokenizer"]] = f"{task}/{split}"
    if len(found) > 1:
        names = " and ".join(found.values())
        raise UserError(f"{tokens_dir}: {names} are of different tokenizers; prepare them together")
    return max(size for size, _ in found)


def _packed(
    dataset: grain.IterDataset, length: int, bins: int, seed: int, shuffle: bool
) -> grain.IterDataset:
    packed = grain.experimental.BestFitPackIterDataset(
        dataset,
        length_struct={"tokens": length, "loss_mask": length},
        num_packing_bins=bins,
        seed=seed,
        shuffle_bins=shuffle,
    )
    return packed.map(_named)


def _named(row: Batch) -> Batch:
    names = {
        "tokens": "tokens",
        "segment_ids": "tokens_segment_ids",
        "positions": "tokens_positions",
        "loss_mask": "loss_mask",
    }
    return {name: np.asarray(row[key], np.int32) for name, key in names.items()}
