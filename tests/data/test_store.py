"""Token files give back what was written, and a broken one is one clear line."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer2_jax.data.store import TokenFile, pack_record, unpack_record, write_tokens
from composer2_jax.errors import UserError


@given(st.lists(st.tuples(st.integers(0, 2**30 - 1), st.integers(0, 1)), max_size=20))
def test_a_record_gives_ids_and_flags_back(pairs: list[tuple[int, int]]) -> None:
    ids, flags = np.array([p[0] for p in pairs], int), np.array([p[1] for p in pairs], int)
    got_ids, got_flags = unpack_record(pack_record(ids, flags))
    assert got_ids.tolist() == ids.tolist()
    assert got_flags.tolist() == flags.tolist()


def test_flags_that_do_not_fit_are_refused() -> None:
    for flags in ([1], [1, 2], [0, -1]):
        with pytest.raises(ValueError, match="one flag"):
            pack_record(np.array([3, 4]), np.array(flags))


def test_a_token_file_knows_its_counts(tmp_path: Path) -> None:
    documents = [(np.arange(3), np.array([0, 1, 1])), (np.arange(5), np.ones(5, int))]
    counts = write_tokens(tmp_path, "t", "train", documents, vocab_size=8, whole=True)
    file = TokenFile(tmp_path, "t", "train")
    assert (counts["documents"], counts["tokens"], counts["trained_tokens"]) == (2, 8, 7)
    assert file.lengths.tolist() == [3, 5]
    assert file.metadata == counts
    assert file[1][0].tolist() == [0, 1, 2, 3, 4]


def test_a_missing_empty_or_half_written_file_is_one_clear_line(tmp_path: Path) -> None:
    write_tokens(tmp_path, "none", "train", [], vocab_size=8)
    write_tokens(tmp_path, "half", "train", [(np.arange(3), np.ones(3, int))], vocab_size=8)
    # The metadata is written last: without it the rest is not whole.
    (tmp_path / "half" / "train.json").unlink()
    write_tokens(tmp_path, "cut", "train", [(np.arange(3), np.ones(3, int))], vocab_size=8)
    (tmp_path / "cut" / "train.json").write_text("{", encoding="utf-8")
    for task in ("gone", "none", "half", "cut"):
        with pytest.raises(UserError, match=task) as error:
            TokenFile(tmp_path, task, "train")
        assert "\n" not in str(error.value)
        assert "prepare_data" in str(error.value)
