"""Token files: `tokens/<task>/<split>.array_record` with its lengths and its metadata.

A record is one document: little-endian int32, each value `2 * id + trained`. The lengths lie beside
the records so that a reader can cut long documents without reading them, and the metadata is
written last: where it exists the rest is whole. Read by `pipeline` without TensorFlow.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter

from composer2_jax.errors import UserError
from composer2_jax.files import partial_path, write_json

# The ids of a document and, for each, 1 where it is trained as a target.
Ids = tuple[np.ndarray, np.ndarray]


def pack_record(ids: np.ndarray, trained: np.ndarray) -> bytes:
    """One document as bytes."""
    ids, trained = np.asarray(ids, "<i4"), np.asarray(trained, "<i4")
    if ids.shape != trained.shape or ((trained != 0) & (trained != 1)).any():
        raise ValueError("a document needs one flag, 0 or 1, for each id")
    return (2 * ids + trained).tobytes()


def unpack_record(record: bytes) -> Ids:
    """(ids, trained) of one document, both int32."""
    values = np.frombuffer(record, "<i4").astype(np.int32)
    return values >> 1, values & 1


def token_path(tokens_dir: Path, task: str, split: str) -> Path:
    return Path(tokens_dir) / task / f"{split}.array_record"


def write_tokens(
    tokens_dir: Path,
    task: str,
    split: str,
    documents: Iterable[Ids],
    *,
    vocab_size: int,
    tokenizer: str = "",
    whole: bool = False,
) -> dict[str, Any]:
    """Writes the documents of a task's split; returns its counts and metadata, which it keeps.

    `vocab_size` and `tokenizer` (its digest) say whose ids these are; `whole` documents may not be
    split. Raises ValueError for an id that the vocabulary does not have.
    """
    path = token_path(tokens_dir, task, split)
    partial = partial_path(path)
    # One record a group: documents are read one by one in a shuffled order.
    writer = ArrayRecordWriter(str(partial), "group_size:1")
    lengths, trained_tokens = [], 0
    for ids, trained in documents:
        if len(ids) and not 0 <= np.min(ids) <= np.max(ids) < vocab_size:
            raise ValueError(f"{task}: ids beyond a vocabulary of {vocab_size}")
        writer.write(pack_record(ids, trained))
        lengths.append(len(ids))
        trained_tokens += int(np.sum(trained))
    writer.close()
    os.replace(partial, path)
    with open(partial_path(path.with_suffix(".lengths.npy")), "wb") as stream:
        np.save(stream, np.asarray(lengths, np.int32))
    os.replace(stream.name, path.with_suffix(".lengths.npy"))
    counts = {
        "documents": len(lengths),
        "tokens": int(sum(lengths)),
        "trained_tokens": trained_tokens,
        "longest": max(lengths, default=0),
    }
    metadata = {"whole": whole, "vocab_size": vocab_size, "tokenizer": tokenizer}
    write_json(path.with_suffix(".json"), {**counts, **metadata})
    return {**counts, **metadata}


class TokenFile:
    """Random access to the documents of one task's split."""

    def __init__(self, tokens_dir: Path, task: str, split: str):
        path = token_path(tokens_dir, task, split)
        try:
            self.metadata = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            self.lengths: np.ndarray = np.load(path.with_suffix(".lengths.npy"))
        except FileNotFoundError:
            raise UserError(f"{path}: no such token file; make it with prepare_data") from None
        except ValueError as error:
            raise UserError(f"{path}: damaged ({error}); run prepare_data again") from error
        if not len(self.lengths):
            raise UserError(f"{path}: holds no documents; see the counts that prepare_data printed")
        self._records = ArrayRecordDataSource([str(path)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Ids:
        return unpack_record(self._records[int(index)])
