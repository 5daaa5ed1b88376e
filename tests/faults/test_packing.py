"""Faults of packing and of data order that other trainers had: positions run on, targets cross a
boundary, the loss depends on the packing, a restart repeats batches, all of it needs TensorFlow.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from composer2_jax.data.pipeline import eval_batches, train_iterator
from composer2_jax.data.store import write_tokens

LENGTHS = (2, 6, 3, 9, 1, 5)


@pytest.fixture
def tokens_dir(tmp_path: Path) -> Path:
    """Six short documents; every second token is trained."""
    documents = []
    for number, length in enumerate(LENGTHS):
        ids = 100 * (number + 1) + np.arange(length)
        documents.append((ids, np.arange(length) % 2))
    documents[0] = (documents[0][0], np.ones(2, int))
    write_tokens(tmp_path, "t", "train", documents, vocab_size=1 << 20)
    return tmp_path


def rows_of(batches: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    return [{k: v[row] for k, v in b.items()} for b in batches for row in range(len(b["tokens"]))]


def test_positions_start_again_and_segments_are_numbered_in_each_row(tokens_dir: Path) -> None:
    for row in rows_of(eval_batches(tokens_dir, "t", "train", 2, 12)):
        for segment in range(1, row["segment_ids"].max() + 1):
            inside = row["segment_ids"] == segment
            positions = row["positions"][inside]
            # Positions that run on would give the second document 2, 3, ...
            assert positions.tolist() == list(range(inside.sum()))
            assert len({token // 100 for token in row["tokens"][inside]}) == 1


def test_padding_is_on_the_right_and_is_never_trained(tokens_dir: Path) -> None:
    for row in rows_of(eval_batches(tokens_dir, "t", "train", 4, 12)):
        padding = row["segment_ids"] == 0
        first = int(np.argmax(padding)) if padding.any() else len(padding)
        assert not padding[:first].any() and padding[first:].all()
        for name in ("tokens", "positions", "loss_mask"):
            assert not row[name][padding].any(), name


def test_no_target_crosses_into_a_neighbour(tokens_dir: Path) -> None:
    """A target on a segment's first token would be predicted from another document."""
    trained_firsts = 0
    for row in rows_of(eval_batches(tokens_dir, "t", "train", 2, 12)):
        starts = (row["positions"] == 0) & (row["segment_ids"] > 0)
        trained_firsts += int(row["loss_mask"][starts].sum())
    # The first document asks for it: its flags are all ones.
    assert trained_firsts == 0


def test_packed_equals_unpacked_for_sums_and_weights(tokens_dir: Path) -> None:
    """A toy loss that depends on (previous token, token, position), summed over trained targets."""

    def loss(batches: list[dict[str, np.ndarray]]) -> tuple[float, int]:
        total, weight = 0.0, 0
        for row in rows_of(batches):
            values = np.sin(row["tokens"][:-1] * 3.0 + row["tokens"][1:]) + row["positions"][1:]
            total += float((values * row["loss_mask"][1:]).sum())
            weight += int(row["loss_mask"].sum())
        return total, weight

    alone = loss([b for n in (9,) for b in eval_batches(tokens_dir, "t", "train", 1, n)])
    for rows, length in ((1, 26), (2, 13), (3, 10), (8, 9)):
        packed = loss(eval_batches(tokens_dir, "t", "train", rows, length))
        assert packed[1] == alone[1], "packing changed how many targets there are"
        assert packed[0] == pytest.approx(alone[0], rel=1e-9)


def test_a_state_set_before_the_first_batch_counts(tokens_dir: Path) -> None:
    """An iterator that fills its packer before the state is set would repeat the first batches."""

    def fresh():
        return train_iterator(tokens_dir, {"t": 1.0}, 2, 12, seed=3, packing_bins=4)

    run = fresh()
    batches = [next(run)["tokens"].tolist() for _ in range(9)]
    half = fresh()
    for _ in range(4):
        next(half)
    resumed = fresh()
    resumed.set_state(half.get_state())
    assert [next(resumed)["tokens"].tolist() for _ in range(5)] == batches[4:]
    # The same when it had already been read from.
    used = fresh()
    next(used)
    used.set_state(half.get_state())
    assert [next(used)["tokens"].tolist() for _ in range(5)] == batches[4:]


TF_FREE = """
import sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("seqio", "tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from composer2_jax.data import chat, corpora, documents, prepare, seqio_tasks, tokenizer
from composer2_jax.data.pipeline import train_iterator
batch = next(train_iterator(Path(sys.argv[1]), {"t": 1.0}, 2, 12, seed=0))
assert batch["tokens"].shape == (2, 12)
from composer2_jax.errors import UserError
try:
    seqio_tasks.iterate("t", "train").__next__()
except UserError as error:
    assert "prepare_data.reader='python'" in str(error), error
else:
    raise AssertionError("SeqIO was there")
"""


def test_training_data_needs_no_tensorflow(tokens_dir: Path) -> None:
    command = [sys.executable, "-c", TF_FREE, str(tokens_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
