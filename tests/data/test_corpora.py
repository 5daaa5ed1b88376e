"""The corpus is split by file with a stable hash, and what it skips is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

from composer2_jax.data.corpora import build_corpus, source_paths, split_of
from composer2_jax.errors import UserError


def test_every_readable_file_is_one_example_with_its_licence(
    small_root: Path, tmp_path: Path
) -> None:
    root = small_root / "sources"
    examples, counts = build_corpus(tmp_path, root=str(root))
    both = examples["train"] + examples["heldout"]
    assert len(both) == counts["files_train"] + counts["files_heldout"] == 41
    assert {example["path"] for example in both} == {p.name for p in root.glob("*.py")} - {
        "latin.py"
    }
    for example in both:
        assert example["text"] == (root / example["path"]).read_bytes().decode()
        assert example["licence"] == "PSF-2.0"


def test_skipped_files_are_counted_by_reason(small_root: Path, tmp_path: Path) -> None:
    _, counts = build_corpus(tmp_path, root=str(small_root / "sources"))
    assert counts["skipped"] == {"not_utf8": 1}


def test_the_split_follows_the_path_alone(small_root: Path, tmp_path: Path) -> None:
    examples, _ = build_corpus(tmp_path, root=str(small_root / "sources"))
    for split, found in examples.items():
        assert found, split
        assert all(split_of(example["path"]) == split for example in found)
    # A fixed point: another hash would move files between the splits of existing data sets.
    assert [split_of(f"m{n}.py") for n in range(40)].count("heldout") == len(
        [e for e in examples["heldout"] if e["path"].startswith("m")]
    )
    assert split_of("argparse.py") == "train"
    assert sum(split_of(f"package/file{n}.py") == "heldout" for n in range(2000)) in range(140, 260)


def test_test_folders_are_an_option(small_root: Path) -> None:
    root = small_root / "sources"
    assert "tests/test_m.py" not in source_paths(root, include_tests=False)
    assert "tests/test_m.py" in source_paths(root, include_tests=True)


def test_a_built_corpus_is_read_not_built_again(small_root: Path, tmp_path: Path) -> None:
    root = str(small_root / "sources")
    first = build_corpus(tmp_path, root=root)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert build_corpus(tmp_path, root=root) == first
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


def test_another_folder_is_another_data_set(small_root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for number in range(40):
        (other / f"n{number}.py").write_text("x = 1\n", encoding="utf-8")
    build_corpus(tmp_path / "data", root=str(small_root / "sources"))
    examples, _ = build_corpus(tmp_path / "data", root=str(other))
    assert all(e["path"].startswith("n") for e in examples["train"] + examples["heldout"])


def test_a_folder_with_too_few_sources_is_one_clear_line(tmp_path: Path) -> None:
    for count in (0, 1):
        with pytest.raises(UserError, match=f"{count} Python sources below .* too few"):
            build_corpus(tmp_path / "data", root=str(tmp_path))
        (tmp_path / "only.py").write_text("x = 1\n", encoding="utf-8")


def test_building_and_reading_never_load_tensorflow(small_root: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from composer2_jax.data.corpora import build_corpus;"
        "build_corpus(Path(sys.argv[1]), root=sys.argv[2]); assert 'tensorflow' not in sys.modules"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(small_root / "sources")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
