"""What is trained on and in which shares, as SeqIO tasks and mixtures.

The only module that needs TensorFlow, and only when `iterate` or `register` is called: `prepare`
runs the tasks once and stores their ids, training reads those with Grain. A table of plain values
defines the tasks, so that `read_documents` can do the same work where SeqIO is not installed.
"""

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from composer2_jax.agent.messages import Message
from composer2_jax.agent.transcript import encode_content
from composer2_jax.data.chat import conversation_to_ids
from composer2_jax.data.store import Ids
from composer2_jax.data.tokenizer import Tokenizer
from composer2_jax.errors import UserError

if TYPE_CHECKING:
    import seqio


@dataclass(frozen=True)
class TokenTask:
    """A task: `documents/<name>/<split>.jsonl` to ids.

    loss: "all" tokens, or only those the "agent" chose; whole: a document may not be split.
    """

    name: str
    splits: tuple[str, ...] = ("train", "heldout")
    loss: str = "all"
    whole: bool = False


@dataclass(frozen=True)
class Plan:
    """The tasks and, for each mixture, the share of examples that each task gives."""

    tasks: tuple[TokenTask, ...]
    mixtures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {task.name for task in self.tasks}
        for mixture, shares in self.mixtures.items():
            unknown = sorted(set(shares) - names)
            if unknown:
                raise UserError(
                    f"mixture {mixture}: no task {unknown[0]}; there are {sorted(names)}"
                )
            if any(not share >= 0 for share in shares.values()) or not sum(shares.values()) > 0:
                raise UserError(f"mixture {mixture}: {dict(shares)} are no shares above 0")


STDLIB_TASKS = (TokenTask("stdlib_quote"), TokenTask("stdlib_repair"), TokenTask("stdlib_plain"))
SFT_TASK = TokenTask("sft_transcripts", ("train",), loss="agent", whole=True)


def encode_document(line: str | bytes, task: TokenTask, tokenizer: Tokenizer) -> Ids:
    """The ids of one document and 1 where an id is trained.

    A text ends with the end-of-text id, so that packed neighbours are told apart; a conversation
    for the agent ends as a rollout does.
    """
    document = json.loads(line)
    if "text" in document:
        ids = encode_content(document["text"], tokenizer.encode)
    else:
        messages = [Message.from_dict(message) for message in document["messages"]]
        ids, mask = conversation_to_ids(messages, tokenizer.encode, document.get("trained"))
        if task.loss == "agent":
            return np.asarray(ids, np.int32), np.asarray(mask, np.int32)
    return np.asarray([*ids, tokenizer.eos_id], np.int32), np.ones(len(ids) + 1, np.int32)


def document_path(documents_dir: Path, task: TokenTask, split: str) -> Path:
    return documents_dir / task.name / f"{split}.jsonl"


def read_documents(
    documents_dir: Path, task: TokenTask, split: str, tokenizer: Tokenizer
) -> Iterator[Ids]:
    """The documents of a split as ids, without SeqIO."""
    with open(document_path(documents_dir, task, split), "rb") as stream:
        for line in stream:
            yield encode_document(line, task, tokenizer)


def register(plan: Plan, documents_dir: Path, tokenizer: Tokenizer) -> None:
    """Adds the tasks and mixtures to SeqIO's registries; earlier ones of a name are replaced."""
    seqio = _import_seqio()
    registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
    names = [{task.name for task in plan.tasks}, set(plan.mixtures)]
    for registry, added in zip(registries, names, strict=True):
        for name in added & set(registry.names()):
            registry.remove(name)
    vocabulary = seqio.PassThroughVocabulary(size=tokenizer.vocab_size, eos_id=tokenizer.eos_id)
    flags = seqio.PassThroughVocabulary(size=2)
    for task in plan.tasks:
        seqio.TaskRegistry.add(
            task.name,
            source=seqio.FunctionDataSource(
                functools.partial(_lines, documents_dir, task), splits=task.splits
            ),
            preprocessors=[functools.partial(_encode, task=task, tokenizer=tokenizer)],
            output_features={
                "targets": seqio.Feature(vocabulary, add_eos=False),
                "loss_mask": seqio.Feature(flags, add_eos=False),
            },
        )
    for name, shares in plan.mixtures.items():
        seqio.MixtureRegistry.add(name, list(shares.items()))


def iterate(name: str, split: str) -> Iterator[Ids]:
    """The examples of a registered task as ids and flags, in the order of its documents."""
    seqio = _import_seqio()
    dataset = seqio.get_mixture_or_task(name).get_dataset(
        sequence_length=None, split=split, shuffle=False, num_epochs=1
    )
    for example in dataset.as_numpy_iterator():
        yield example["targets"], example["loss_mask"]


def mixture_shares(name: str) -> dict[str, float]:
    """The shares of a registered mixture, which add up to 1."""
    mixture = _import_seqio().MixtureRegistry.get(name)
    rates = {task.name: float(mixture.get_rate(task)) for task in mixture.tasks}
    return normalised(rates)


def normalised(shares: Mapping[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    return {name: share / total for name, share in sorted(shares.items())}


def _import_seqio() -> "seqio":
    # Text is turned into ids on the CPU: TensorFlow must not take an accelerator, and that it finds
    # none is no error to print.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import seqio
    except ImportError as error:
        raise UserError(
            f"prepare_data.reader='seqio' needs SeqIO and TensorFlow ({error}): install the extra "
            "[data], or set prepare_data.reader='python'"
        ) from error
    return seqio


def _lines(
    documents_dir: Path, task: TokenTask, split: str, shuffle_files: bool, seed: int | None = None
) -> Any:
    import tensorflow as tf

    return tf.data.TextLineDataset(str(document_path(documents_dir, task, split)))


def _encode(dataset: Any, task: TokenTask, tokenizer: Tokenizer) -> Any:
    import tensorflow as tf

    def encode(line: Any) -> Ids:
        # A scalar string arrives as a 0-d object array, the bytes inside it.
        text = line if isinstance(line, bytes) else line.item()
        return encode_document(text, task, tokenizer)

    def example(line: Any) -> dict[str, Any]:
        targets, mask = tf.numpy_function(encode, [line], (tf.int32, tf.int32))
        return {
            "targets": tf.ensure_shape(targets, [None]),
            "loss_mask": tf.ensure_shape(mask, [None]),
        }

    return dataset.map(example)
