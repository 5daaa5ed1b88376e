"""Corpora as TFDS data sets: the Python sources that every machine already has.

One example a file, split by file with a stable hash. Stored as array_record, built and read without
TensorFlow. The report's corpus is a large mix of code; this one stands in for it at small scale.
"""

import contextlib
import hashlib
import io
import os
import platform
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from absl import logging as absl_logging

from composer2_jax.errors import UserError

TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
FOREIGN_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})
LICENCE = "PSF-2.0"
HELDOUT_PERCENT = 10


def split_of(path: str, heldout_percent: int = HELDOUT_PERCENT) -> str:
    """ "train" or "heldout", by the path alone: adding files moves no other file."""
    bucket = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") % 100
    return "heldout" if bucket < heldout_percent else "train"


def source_paths(root: Path, include_tests: bool) -> list[str]:
    """The .py files below `root`, relative, in a fixed order; installed packages are left out."""
    left_out = FOREIGN_FOLDERS if include_tests else FOREIGN_FOLDERS | TEST_FOLDERS
    paths = []
    for folder, children, names in os.walk(root):
        children[:] = sorted(child for child in children if child not in left_out)
        inside = Path(folder).relative_to(root)
        paths += [(inside / name).as_posix() for name in names if name.endswith(".py")]
    return sorted(paths)


def read_sources(root: Path, include_tests: bool) -> tuple[dict[str, str], Counter[str]]:
    """Path -> text of the readable sources, and how many were skipped for which reason."""
    texts: dict[str, str] = {}
    skipped: Counter[str] = Counter()
    for path in source_paths(root, include_tests):
        try:
            texts[path] = (root / path).read_bytes().decode("utf-8")
        except OSError:
            skipped["unreadable"] += 1
        except UnicodeDecodeError:
            skipped["not_utf8"] += 1
    return texts, skipped


@dataclass
class SourceConfig(tfds.core.BuilderConfig):
    """Which files: those below `root` (default: the running interpreter's standard library)."""

    include_tests: bool = False
    root: str = ""


def standard_library_config(include_tests: bool = False, root: str = "") -> SourceConfig:
    """A config whose name tells interpreters apart: another Python is another data set."""
    name = f"{sys.implementation.name}_{platform.python_version()}".replace(".", "_")
    if root:
        name = "files_" + hashlib.sha256(root.encode()).hexdigest()[:12]
    return SourceConfig(
        name=name + ("_with_tests" if include_tests else ""),
        description="The standard library of the interpreter that built the data set.",
        include_tests=include_tests,
        root=root,
    )


class PythonSources(tfds.core.GeneratorBasedBuilder):
    """One example a file: its path, its text and its licence."""

    VERSION = tfds.core.Version("1.0.0")
    # Nothing is downloaded, so TFDS need not look for checksums beside this file.
    pkg_dir_path = None
    code_path = None

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict({"path": text, "text": text, "licence": text}),
            metadata=tfds.core.MetadataDict(),
            disable_shuffling=True,
        )

    def _split_generators(self, _: Any) -> dict[str, Iterator[tuple[int, dict[str, str]]]]:
        config = self.builder_config
        root = Path(config.root or sysconfig.get_paths()["stdlib"])
        texts, skipped = read_sources(root, config.include_tests)
        if {split_of(path) for path in texts} != {"train", "heldout"}:
            raise UserError(
                f"corpora: {len(texts)} Python sources below {root}, too few for a train and a "
                "held-out split; name another folder with prepare_data.sources_root"
            )
        self.info.metadata["skipped"] = dict(skipped)
        self.info.metadata["bytes"] = sum(len(text.encode()) for text in texts.values())
        return {split: self._generate_examples(texts, split) for split in ("train", "heldout")}

    def _generate_examples(
        self, texts: dict[str, str], split: str
    ) -> Iterator[tuple[int, dict[str, str]]]:
        chosen = [path for path in texts if split_of(path) == split]
        for number, path in enumerate(chosen):
            yield number, {"path": path, "text": texts[path], "licence": LICENCE}


def build_corpus(
    data_dir: Path, include_tests: bool = False, root: str = ""
) -> tuple[dict[str, list[dict[str, str]]], dict[str, Any]]:
    """Builds the data set unless it is there; returns its examples by split, and its counts."""
    config = standard_library_config(include_tests, root)
    with _quiet():
        builder = PythonSources(data_dir=str(data_dir), config=config, file_format="array_record")
        builder.download_and_prepare()
    examples = {split: _read_split(builder, split) for split in ("train", "heldout")}
    counts = {f"files_{split}": len(found) for split, found in examples.items()}
    return examples, {**counts, **dict(builder.info.metadata)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without TFDS's own bars and remarks: a stage has one progress bar, the caller's."""
    tfds.disable_progress_bar()
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        absl_logging.set_verbosity(verbosity)


def _read_split(builder: PythonSources, split: str) -> list[dict[str, str]]:
    source = builder.as_data_source(split)
    return [{name: value.decode() for name, value in example.items()} for example in source]
