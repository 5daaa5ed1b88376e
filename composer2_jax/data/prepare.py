"""Stage by stage from the interpreter's own sources and the agent's transcripts to token files.

    corpus/          TFDS data set of source files, split by file     (`corpora`)
    sources/         functions and files in normal form, by split      (`sources`)
    tokenizer.model  trained on the train split and the transcripts    (`tokenizer`)
    documents/       what each task reads, one JSON object a line      (`documents`)
    tokens/          the ids of each task and split                    (`seqio_tasks`, `store`)
    mixtures.json    the share of each task

A stage leaves `stages/<name>.json` with its counts when it is whole; a run that was stopped skips
those and starts the others again. Called by the verb `prepare_data`.
"""

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from composer2_jax.data import documents
from composer2_jax.data.corpora import build_corpus
from composer2_jax.data.seqio_tasks import (
    SFT_TASK,
    STDLIB_TASKS,
    Plan,
    TokenTask,
    document_path,
    iterate,
    mixture_shares,
    normalised,
    read_documents,
    register,
)
from composer2_jax.data.sources import Function, Sources, collect
from composer2_jax.data.store import write_tokens
from composer2_jax.data.tokenizer import Tokenizer, train_tokenizer
from composer2_jax.envs.task import read_tasks
from composer2_jax.errors import UserError
from composer2_jax.files import read_json_lines, write_json, write_json_lines

SPLITS = ("train", "heldout")
MAKERS: dict[str, documents.Maker] = {
    "stdlib_quote": documents.quote_documents,
    "stdlib_repair": documents.repair_documents,
    "stdlib_plain": documents.plain_documents,
}
PRETRAIN_SHARES = {"stdlib_quote": 0.4, "stdlib_repair": 0.45, "stdlib_plain": 0.15}
TOKENIZER_CONVERSATIONS = 500


def prepare_data(
    workdir: Path,
    tasks_dir: str = "../tasks",
    seed: int = 0,
    vocab_size: int = 1024,
    mixtures: Mapping[str, Mapping[str, float]] | None = None,
    max_document_tokens: int = 256,
    max_conversation_tokens: int = 512,
    include_tests: bool = False,
    sources_root: str = "",
    max_files: int | None = None,
    reader: Literal["seqio", "python"] = "seqio",
) -> dict[str, Any]:
    """Makes everything that training reads; returns the counts of each stage.

    Args:
      workdir: where the files go.
      tasks_dir: what the verb `tasks` wrote; "" = no transcripts and nothing to exclude.
      seed: of the documents' random choices.
      vocab_size: of the tokenizer.
      mixtures: name -> task -> share of examples; the default has "pretrain" and "sft".
      max_document_tokens: of a quote or repair document.
      max_conversation_tokens: longer transcripts are dropped, and counted.
      include_tests: take the standard library's test folders too.
      sources_root: a folder of Python sources in place of the standard library.
      max_files: use only the first files of each split, for a quick look.
      reader: "seqio", or "python" for the same ids without TensorFlow.
    """
    tasks = (workdir / tasks_dir).resolve() if tasks_dir else None
    plan = _plan(mixtures, with_transcripts=tasks is not None)
    splits = [(task, split) for task in plan.tasks for split in task.splits]
    with _Stages(workdir, total=2 + len(plan.tasks) + len(splits)) as run:
        run.stage("sources", _sources, tasks, include_tests, sources_root, max_files)
        sources = {split: _load_sources(workdir, split) for split in SPLITS}
        run.stage("tokenizer", _tokenizer, sources, tasks, vocab_size)
        tokenizer = Tokenizer(workdir / "tokenizer.model")
        for task in plan.tasks:
            if tasks is not None and task == SFT_TASK:
                run.stage(task.name, _transcripts, tasks, tokenizer, max_conversation_tokens)
            else:
                run.stage(
                    task.name, _documents, task, sources, seed, max_document_tokens, tokenizer
                )
        names = {f"tokens/{task.name}/{split}": (task, split) for task, split in splits}
        if reader == "seqio" and not (run.whole(*names) and (workdir / "mixtures.json").exists()):
            register(plan, workdir / "documents", tokenizer)
        for name, (task, split) in names.items():
            run.stage(name, _tokens, task, split, tokenizer, reader)
        _mixtures(workdir, plan, reader)
        return run.counts


class _Stages:
    """Runs each stage once: a file keeps its counts, and its presence means that it is whole."""

    def __init__(self, workdir: Path, total: int):
        self.workdir = workdir
        self.counts: dict[str, Any] = {}
        self._bar = tqdm(total=total, desc="prepare_data", unit="stage")

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *unused: object) -> None:
        self._bar.close()

    def whole(self, *names: str) -> bool:
        return all(self._path(name).exists() for name in names)

    def stage(self, name: str, work: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        self._bar.set_postfix_str(name)
        path = self._path(name)
        if path.exists():
            self.counts[name] = json.loads(path.read_text(encoding="utf-8"))
        else:
            start = time.monotonic()
            counts = work(self.workdir, *arguments)
            self.counts[name] = {**counts, "seconds": round(time.monotonic() - start, 2)}
            write_json(path, self.counts[name])
        self._bar.update()

    def _path(self, name: str) -> Path:
        return self.workdir / "stages" / f"{name}.json"


def _plan(mixtures: Mapping[str, Mapping[str, float]] | None, with_transcripts: bool) -> Plan:
    tasks = (*STDLIB_TASKS, SFT_TASK) if with_transcripts else STDLIB_TASKS
    if mixtures is None:
        mixtures = {"pretrain": PRETRAIN_SHARES}
        if with_transcripts:
            mixtures = {**mixtures, "sft": {SFT_TASK.name: 1.0}}
    return Plan(tasks, mixtures)


# Stages


def _sources(
    workdir: Path, tasks: Path | None, include_tests: bool, root: str, max_files: int | None
) -> dict[str, Any]:
    examples, counts = build_corpus(workdir / "corpus", include_tests, root)
    excluded: frozenset[str] = frozenset()
    if tasks is not None:
        reported = (tasks / "validation.jsonl", tasks / "heldout.jsonl")
        excluded = frozenset(task.function for path in reported for task in read_tasks(path))
    seen: Counter[str] = Counter(names_excluded=len(excluded))
    known: set[str] = set()
    for split in SPLITS:
        found = collect(examples[split][:max_files], excluded, seen)
        fresh = [function for function in found.functions if function.source not in known]
        seen["functions_heldout_also_in_train"] += len(found.functions) - len(fresh)
        known.update(function.source for function in fresh)
        write_json_lines(
            workdir / "sources" / f"{split}.jsonl",
            [
                *({"function": dataclasses.asdict(function)} for function in fresh),
                *({"file": text} for text in found.files),
            ],
        )
        counts[f"functions_{split}"] = len(fresh)
    return {**counts, **seen}


def _load_sources(workdir: Path, split: str) -> Sources:
    lines = read_json_lines(workdir / "sources" / f"{split}.jsonl")
    return Sources(
        [Function(**line["function"]) for line in lines if "function" in line],
        [line["file"] for line in lines if "file" in line],
    )


def _tokenizer(
    workdir: Path, sources: Mapping[str, Sources], tasks: Path | None, vocab_size: int
) -> dict[str, Any]:
    """Held-out sources and held-out tasks stay unseen: transcripts are of train functions only."""
    sample = [] if tasks is None else _read_transcripts(tasks)[:TOKENIZER_CONVERSATIONS]
    path = workdir / "tokenizer.model"
    train_tokenizer(documents.tokenizer_texts(sources["train"], sample), path, vocab_size)
    tokenizer = Tokenizer(path)
    held_out = "\n".join(function.source for function in sources["heldout"].functions)
    ratio = len(held_out.encode()) / max(1, len(tokenizer.encode(held_out)))
    return {
        "digest": tokenizer.digest,
        "vocab_size": vocab_size,
        "bytes_per_token": round(ratio, 3),
    }


def _documents(
    workdir: Path,
    task: TokenTask,
    sources: Mapping[str, Sources],
    seed: int,
    max_tokens: int,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for split in task.splits:
        # One token is kept for the end-of-text id.
        made = list(
            MAKERS[task.name](sources[split], seed, max_tokens - 1, tokenizer.encode, counts)
        )
        counts[f"documents_{split}"] = len(made)
        write_json_lines(document_path(workdir / "documents", task, split), made)
    return dict(counts)


def _transcripts(
    workdir: Path, tasks: Path, tokenizer: Tokenizer, max_tokens: int
) -> dict[str, Any]:
    kept, dropped, longest = [], 0, 0
    for conversation in _read_transcripts(tasks):
        document = {key: conversation[key] for key in ("messages", "trained")}
        length = documents.document_length(document, tokenizer.encode)
        longest = max(longest, length)
        if length > max_tokens:
            dropped += 1
        else:
            kept.append(document)
    if not kept:
        raise UserError(
            f"prepare_data.max_conversation_tokens={max_tokens}: no transcript is that short "
            f"(the longest has {longest} tokens); set a larger one"
        )
    write_json_lines(document_path(workdir / "documents", SFT_TASK, "train"), kept)
    return {"documents_train": len(kept), "too_long": dropped, "longest": longest}


def _tokens(
    workdir: Path, task: TokenTask, split: str, tokenizer: Tokenizer, reader: str
) -> dict[str, Any]:
    if reader == "seqio":
        ids = iterate(task.name, split)
    else:
        ids = read_documents(workdir / "documents", task, split, tokenizer)
    return write_tokens(
        workdir / "tokens",
        task.name,
        split,
        ids,
        vocab_size=tokenizer.vocab_size,
        tokenizer=tokenizer.digest,
        whole=task.whole,
    )


def _mixtures(workdir: Path, plan: Plan, reader: str) -> None:
    path = workdir / "mixtures.json"
    if not path.exists():
        shares = {name: normalised(given) for name, given in plan.mixtures.items()}
        if reader == "seqio":
            shares = {name: mixture_shares(name) for name in plan.mixtures}
        write_json(path, shares)


def _read_transcripts(tasks: Path) -> Sequence[dict[str, Any]]:
    path = tasks / "transcripts.jsonl"
    try:
        return read_json_lines(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with the verb `tasks`") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON lines ({error}); make it again") from error
