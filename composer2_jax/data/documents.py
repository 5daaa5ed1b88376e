"""Pretraining documents: what a tiny model must have seen before it can use the tools.

    quote   a numbered function, then its lines read again in random order: looking a line up
    repair  a numbered function with some faults, then the turns that view and mend each faulty line
            and now and then look at a sound one and go on
    plain   functions, numbered or not, and whole files: code itself

Quote and repair documents are conversations in the very layout in which the agent works. A document
is a JSON object with either "messages" or "text". Built once by `prepare`; each document depends on
its function and the seed alone. Imports `agent` and `envs`.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from composer2_jax.agent.call_format import number_lines
from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.agent.transcript import Encoder
from composer2_jax.data.chat import conversation_to_ids
from composer2_jax.data.sources import Function, Sources
from composer2_jax.envs.mutation import edit_fragment, fragile_lines, mutate

Document = dict[str, Any]
Maker = Callable[[Sources, int, int, Encoder, Counter[str]], Iterator[Document]]
Repairs = dict[int, tuple[str, str]]  # line number -> its faulty and its right text

MIN_QUOTES = 3
MAX_FAULTS = 3
SOUND_SHARE = 0.5


def quote_documents(
    sources: Sources, seed: int, max_tokens: int, encode: Encoder, counts: Counter[str]
) -> Iterator[Document]:
    """Each function once, followed by as many of its lines as `max_tokens` has room for."""
    for function in sources.functions:
        rng = _rng(seed, "quote", function)
        messages = _opening(function.name, function.source)
        room = max_tokens - _length(messages, encode)
        order = rng.sample(range(1, len(function.lines) + 1), len(function.lines))
        quotes = 0
        for number in order:
            turn = _view(number, function.lines[number - 1])
            room -= _length(turn, encode)
            if room < 0:
                break
            messages += turn
            quotes += 1
        if quotes < MIN_QUOTES:
            counts["quote_too_long"] += 1
            continue
        yield {"messages": [message.to_dict() for message in messages]}


def repair_documents(
    sources: Sources, seed: int, max_tokens: int, encode: Encoder, counts: Counter[str]
) -> Iterator[Document]:
    """Each function with up to `MAX_FAULTS` faults: view a faulty line, mend it, view the next.

    Before a repair a sound line that could be faulty is viewed and left alone with probability
    `SOUND_SHARE`, then the next: an edit must depend on the line and not on having viewed one.
    """
    for function in sources.functions:
        rng = _rng(seed, "repair", function)
        faults = _faults(function.source, rng)
        if not faults:
            counts["repair_without_mutation"] += 1
            continue
        shapes = [(*fault, SOUND_SHARE) for fault in reversed(faults)] + [(*faults[0], 0.0)]
        for shortened, (source, repairs, share) in enumerate(shapes):
            turns = _repair_turns(source, repairs, share, rng)
            messages = [*_opening(function.name, source), *turns]
            if _length(messages, encode) <= max_tokens:
                yield {"messages": [message.to_dict() for message in messages]}
                counts["repair_shortened"] += shortened > 0
                break
        else:
            counts["repair_too_long"] += 1


def _repair_turns(
    source: str, repairs: Repairs, sound_share: float, rng: random.Random
) -> list[Message]:
    """Views and mends the faulty lines in random order, with views of sound ones in between."""
    lines = source.split("\n")
    sound = sorted(fragile_lines(source) - repairs.keys())
    rng.shuffle(sound)
    turns: list[Message] = []
    for number, (faulty, right) in rng.sample(sorted(repairs.items()), len(repairs)):
        while sound and rng.random() < sound_share:
            other = sound.pop()
            turns += _view(other, lines[other - 1])
        turns += [*_view(number, faulty), *_edit(faulty, right)]
    return turns


def _faults(source: str, rng: random.Random) -> list[tuple[str, Repairs]]:
    """Sources with one fault, two, ...; for each what mends its faulty lines."""
    found: list[tuple[str, Repairs]] = []
    repairs: Repairs = {}
    for _ in range(MAX_FAULTS):
        mutation = mutate(source, rng)
        if mutation is None or mutation.line in repairs:
            break
        source = mutation.source
        repairs[mutation.line] = (mutation.faulty_line, mutation.fixed_line)
        found.append((source, dict(repairs)))
    return found


def plain_documents(
    sources: Sources, seed: int, max_tokens: int, encode: Encoder, counts: Counter[str]
) -> Iterator[Document]:
    """Every function, half of them numbered, and every file; the pipeline splits the long ones."""
    for function in sources.functions:
        numbered = _rng(seed, "plain", function).random() < 0.5
        yield {"text": number_lines(function.source) if numbered else function.source}
    for text in sources.files:
        if text:
            yield {"text": text}


def tokenizer_texts(sources: Sources, conversations: Sequence[Document]) -> Iterator[str]:
    """What the tokenizer is trained on: numbered functions and what tools and agents say."""
    for function in sources.functions:
        yield number_lines(function.source)
    for conversation in conversations:
        for message in conversation["messages"]:
            yield message["content"]
            for call in message["calls"]:
                yield from call["arguments"].values()


def document_length(document: Document, encode: Encoder) -> int:
    """How many ids a conversation has."""
    return _length([Message.from_dict(message) for message in document["messages"]], encode)


def _opening(name: str, source: str) -> list[Message]:
    """A user names a function, the agent reads its file."""
    return [
        Message("user", name),
        Message("assistant", "", (ToolCall("read_file", {}),)),
        Message("tool", number_lines(source)),
    ]


def _view(number: int, line: str) -> list[Message]:
    """The agent reads one line again."""
    return [
        Message("assistant", "", (ToolCall("read_file", {"line": f"{number}|"}),)),
        Message("tool", f"{number}|{line}"),
    ]


def _edit(faulty: str, right: str) -> list[Message]:
    """The agent mends the line it has just read."""
    old, new = edit_fragment(faulty, right)
    edit = ToolCall("edit_file", {"old": old, "new": new})
    return [Message("assistant", "", (edit,)), Message("tool", "ok")]


def _length(messages: Sequence[Message], encode: Encoder) -> int:
    return len(conversation_to_ids(messages, encode)[0])


def _rng(seed: int, kind: str, function: Function) -> random.Random:
    return random.Random(f"{seed}/{kind}/{function.path}/{function.source}")
