"""`prepare_data` is the same with and without SeqIO, goes on where it stopped, and keeps apart what
is to be reported."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from composer2_jax.data import prepare as prepare_module
from composer2_jax.data.store import TokenFile
from composer2_jax.errors import UserError
from tests.data.conftest import conversation, prepare, write_tasks_dir

PRODUCTS = ("tokenizer.model", "mixtures.json", "tokens/*/*", "documents/*/*")


def contents(workdir: Path) -> dict[str, bytes]:
    """The products of a run. Record files are compared by record: their headers may differ."""
    found = {}
    for pattern in PRODUCTS:
        for path in sorted(workdir.glob(pattern)):
            name = str(path.relative_to(workdir))
            if path.suffix == ".array_record":
                file = TokenFile(path.parents[1], path.parent.name, path.stem)
                records = [np.concatenate(file[i]).tobytes() for i in range(len(file))]
                found[name] = b"|".join(records)
            else:
                found[name] = path.read_bytes()
    return found


SEQIO_RUN = """
import sys
from pathlib import Path
from tests.data.conftest import prepare
prepare(Path(sys.argv[1]), Path(sys.argv[2]), reader="seqio")
"""


@pytest.mark.slow
def test_seqio_and_the_plain_reader_store_the_same(
    prepared: Path, small_root: Path, tmp_path: Path
) -> None:
    pytest.importorskip("seqio")
    command = [sys.executable, "-c", SEQIO_RUN, str(tmp_path), str(small_root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path) == contents(prepared)


class Stop(Exception):
    """Stands for a kill: nothing of ours catches it."""


@pytest.mark.parametrize("stage", ["_sources", "_tokenizer", "_documents", "_tokens", "_mixtures"])
def test_a_stopped_run_goes_on_and_ends_alike(
    stage: str, prepared: Path, small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(prepare_module, stage)

    def half(workdir: Path, *arguments):
        real(workdir, *arguments)
        raise Stop  # after the work, before it is marked as whole

    monkeypatch.setattr(prepare_module, stage, half)
    with pytest.raises(Stop):
        prepare(tmp_path, small_root)
    monkeypatch.setattr(prepare_module, stage, real)
    prepare(tmp_path, small_root)
    assert contents(tmp_path) == contents(prepared)


def test_a_second_run_does_no_work_and_returns_the_same_counts(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(tmp_path, small_root)
    for stage in ("_sources", "_tokenizer", "_documents", "_transcripts", "_tokens"):
        monkeypatch.setattr(prepare_module, stage, None)
    assert prepare(tmp_path, small_root) == first


def test_no_train_document_is_about_a_reported_function(prepared: Path, small_root: Path) -> None:
    text = "".join(p.read_text() for p in (prepared / "documents").glob("stdlib_*/*.jsonl"))
    assert "def f1_1" in text
    assert "kept_apart" not in text
    counts = json.loads((prepared / "stages" / "sources.json").read_text())
    assert counts["functions_excluded_by_name"] == 1


def test_train_and_heldout_share_no_function(prepared: Path) -> None:
    functions = {
        split: {
            line["function"]["source"]
            for line in prepare_module.read_json_lines(prepared / "sources" / f"{split}.jsonl")
            if "function" in line
        }
        for split in ("train", "heldout")
    }
    assert functions["train"] and functions["heldout"]
    assert not functions["train"] & functions["heldout"]
    counts = json.loads((prepared / "stages" / "sources.json").read_text())
    assert counts["functions_heldout_also_in_train"] == 1


def test_transcripts_that_are_too_long_are_dropped_and_counted(
    small_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "tasks").mkdir()
    tasks = write_tasks_dir(tmp_path / "tasks")
    long = conversation("task_long")
    long["messages"][2]["content"] = "1|x = 1\n" * 100
    with open(tasks / "transcripts.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(long) + "\n")
    counts = prepare(tmp_path / "data", small_root, tasks_dir=str(tasks))["sft_transcripts"]
    assert (counts["documents_train"], counts["too_long"]) == (6, 1)
    assert counts["longest"] > 512
    with pytest.raises(UserError, match="max_conversation_tokens=8: no transcript is that short"):
        prepare(tmp_path / "none", small_root, tasks_dir=str(tasks), max_conversation_tokens=8)


def test_missing_tasks_and_unknown_mixture_members_are_one_clear_line(
    small_root: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="verb `tasks`"):
        prepare(tmp_path / "a", small_root, tasks_dir=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no task stdlib_quot"):
        prepare(tmp_path / "b", small_root, mixtures={"pretrain": {"stdlib_quot": 1.0}})
    assert not (tmp_path / "b").exists(), "bad input must not leave anything behind"
