"""Batches are whole, shuffled, packed and repeatable."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from composer2_jax.data.pipeline import eval_batches, read_mixture, train_iterator
from composer2_jax.data.prepare import PRETRAIN_SHARES
from composer2_jax.data.store import TokenFile, write_tokens
from composer2_jax.errors import UserError

ROWS, LENGTH = 4, 64
Segment = tuple[int, ...]


def make_task(folder: Path, name: str, lengths: list[int], first: int = 10, whole: bool = False):
    """Documents whose tokens all differ: any token tells which document it is from."""
    documents, token = [], first
    for length in lengths:
        documents.append((np.arange(token, token + length), np.ones(length, int)))
        token += length
    write_tokens(folder, name, "train", documents, vocab_size=1 << 20, whole=whole)
    return [tuple(ids.tolist()) for ids, _ in documents]


def segments(batch: dict[str, np.ndarray]) -> list[Segment]:
    found = []
    for tokens, ids in zip(batch["tokens"], batch["segment_ids"], strict=True):
        found += [tuple(tokens[ids == k].tolist()) for k in range(1, ids.max() + 1)]
    return found


def take(iterator, batches: int) -> list[Segment]:
    return [segment for _ in range(batches) for segment in segments(next(iterator))]


@pytest.fixture
def tokens_dir(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    make_task(tmp_path, "a", rng.integers(3, 60, 50).tolist(), first=10)
    make_task(tmp_path, "b", rng.integers(3, 60, 50).tolist(), first=100_000)
    return tmp_path


def iterator(tokens_dir: Path, seed: int = 0, **changes):
    arguments = {"mixture": {"a": 0.7, "b": 0.3}, "rows": ROWS, "length": LENGTH, **changes}
    return train_iterator(tokens_dir, seed=seed, packing_bins=8, **arguments)


def test_a_batch_has_the_four_arrays_of_the_contract(tokens_dir: Path) -> None:
    batch = next(iterator(tokens_dir))
    assert set(batch) == {"tokens", "segment_ids", "positions", "loss_mask"}
    for array in batch.values():
        assert array.shape == (ROWS, LENGTH) and array.dtype == np.int32


def test_an_interrupted_run_sees_the_batches_of_an_uninterrupted_one(tokens_dir: Path) -> None:
    whole = iterator(tokens_dir)
    expected = [next(whole) for _ in range(30)]
    for stop in (1, 7, 19):
        before = iterator(tokens_dir)
        for _ in range(stop):
            next(before)
        # The state goes through JSON, as a checkpoint would keep it.
        state = json.loads(json.dumps(before.get_state()))
        after = iterator(tokens_dir)
        after.set_state(state)
        for want in expected[stop:]:
            got = next(after)
            for name in want:
                np.testing.assert_array_equal(got[name], want[name])


def test_threads_do_not_change_the_order(tokens_dir: Path) -> None:
    assert take(iterator(tokens_dir, threads=0), 20) == take(iterator(tokens_dir, threads=8), 20)


def test_the_order_of_the_mixture_does_not_change_the_batches(tokens_dir: Path) -> None:
    turned = iterator(tokens_dir, mixture={"b": 0.3, "a": 0.7})
    assert take(iterator(tokens_dir), 5) == take(turned, 5)


def test_another_seed_gives_another_order(tokens_dir: Path) -> None:
    assert take(iterator(tokens_dir, seed=0), 5) != take(iterator(tokens_dir, seed=1), 5)


def test_each_epoch_holds_every_document_once_in_a_new_order(tmp_path: Path) -> None:
    documents = make_task(tmp_path, "a", [LENGTH] * 32)
    # A document fills a row, so 8 batches are an epoch exactly; 8 rows are packed at a time.
    batches = iterator(tmp_path, mixture={"a": 1.0})
    first, second = take(batches, 8), take(batches, 8)
    assert sorted(first) == sorted(second) == sorted(documents)
    assert first != second
    assert first != documents


def test_the_shuffle_is_global(tmp_path: Path) -> None:
    documents = make_task(tmp_path, "a", [LENGTH] * 400)
    seen = take(iterator(tmp_path, mixture={"a": 1.0}), 10)
    places = [documents.index(segment) for segment in seen]
    # A shuffle buffer of a few rows would stay near the start.
    assert min(places) < 80 and max(places) > 320


def test_shares_are_kept_by_example(tokens_dir: Path) -> None:
    seen = Counter(segment[0] >= 100_000 for segment in take(iterator(tokens_dir), 100))
    assert abs(seen[True] / seen.total() - 0.3) < 0.03


def test_long_documents_are_split_and_lose_nothing(tmp_path: Path) -> None:
    (document,) = make_task(tmp_path, "a", [10 * LENGTH - 5])
    pieces = take(iterator(tmp_path, mixture={"a": 1.0}), 2)
    # 8 rows hold 8 of the 10 pieces; what is missing stands in the next batches.
    pieces += take(iterator(tmp_path, mixture={"a": 1.0}), 6)[len(pieces) :]
    assert {token for piece in pieces for token in piece} == set(document)
    assert max(map(len, pieces)) == LENGTH


def test_a_conversation_is_never_cut(tmp_path: Path) -> None:
    documents = make_task(tmp_path, "chat", [40, 50, LENGTH, 20] * 4, whole=True)
    assert set(take(iterator(tmp_path, mixture={"chat": 1.0}), 12)) == set(documents)
    with pytest.raises(UserError, match=f"{LENGTH} tokens does not fit in rows of 63"):
        iterator(tmp_path, mixture={"chat": 1.0}, length=63)


def test_the_fill_is_above_nine_tenths_on_mixed_lengths(tmp_path: Path) -> None:
    lengths = np.random.default_rng(1).integers(20, 256, 2000).tolist()
    make_task(tmp_path, "a", lengths)
    batches = train_iterator(tmp_path, {"a": 1.0}, 8, 256, seed=0)
    assert np.mean([next(batches)["segment_ids"] > 0 for _ in range(60)]) > 0.9


def test_evaluation_sees_every_document_once_in_a_fixed_order(tokens_dir: Path) -> None:
    batches = eval_batches(tokens_dir, "a", "train", ROWS, LENGTH)
    file = TokenFile(tokens_dir, "a", "train")
    expected = sorted(tuple(file[i][0].tolist()) for i in range(len(file)))
    assert sorted(s for batch in batches for s in segments(batch)) == expected
    assert all(batch["tokens"].shape == (ROWS, LENGTH) for batch in batches)
    again = eval_batches(tokens_dir, "a", "train", ROWS, LENGTH, limit=2)
    assert len(again) == 2
    np.testing.assert_array_equal(again[1]["tokens"], batches[1]["tokens"])


def test_bad_requests_are_one_clear_line(prepared: Path) -> None:
    tokens = prepared / "tokens"
    with pytest.raises(UserError, match="no task has a share"):
        train_iterator(tokens, {"stdlib_plain": 0.0}, 1, 8, 0)
    with pytest.raises(UserError, match="no such token file"):
        train_iterator(tokens, {"stdlib_plane": 1.0}, 1, 8, 0)
    with pytest.raises(UserError, match="no mixture 'pretrian'"):
        read_mixture(prepared, "pretrian")


def test_prepared_mixtures_feed_the_iterator(prepared: Path) -> None:
    mixture = read_mixture(prepared, "pretrain")
    assert mixture == PRETRAIN_SHARES
    batch = next(train_iterator(prepared / "tokens", mixture, 4, 256, seed=0))
    assert np.mean(batch["segment_ids"] > 0) > 0.7
