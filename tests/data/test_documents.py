"""Pretraining documents have the agent's layout, tell the truth, and keep to their budget."""

from collections import Counter

import pytest

from composer2_jax.agent.call_format import number_lines
from composer2_jax.agent.messages import Message
from composer2_jax.data import documents
from composer2_jax.data.sources import Function, Sources
from composer2_jax.data.tokenizer import Tokenizer

SOURCE = """def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x"""
SOURCES = Sources([Function("m.py", "clamp", SOURCE)], ["x = 1"])


def make(maker, tokenizer: Tokenizer, seed: int = 0, budget: int = 250):
    counts: Counter[str] = Counter()
    return list(maker(SOURCES, seed, budget, tokenizer.encode, counts)), counts


def messages_of(document) -> list[Message]:
    return [Message.from_dict(message) for message in document["messages"]]


def test_a_quote_document_reads_every_line_again_in_random_order(tokenizer: Tokenizer) -> None:
    orders = set()
    for seed in range(5):
        ((document,), _) = make(documents.quote_documents, tokenizer, seed)
        user, first, whole, *rest = messages_of(document)
        assert user == Message("user", "clamp")
        assert first.calls[0].name == "read_file" and not first.calls[0].arguments
        assert whole.content == number_lines(SOURCE)
        asked = [turn.calls[0].arguments["line"] for turn in rest[::2]]
        shown = [result.content for result in rest[1::2]]
        lines = number_lines(SOURCE).split("\n")
        assert sorted(shown) == sorted(lines)
        assert [line.split("|")[0] + "|" for line in shown] == asked
        orders.add(tuple(asked))
    assert len(orders) > 1


def test_a_quote_document_keeps_to_its_budget_or_is_counted(tokenizer: Tokenizer) -> None:
    ((whole,), _) = make(documents.quote_documents, tokenizer)
    full = documents.document_length(whole, tokenizer.encode)
    ((shorter,), _) = make(documents.quote_documents, tokenizer, budget=full - 1)
    assert documents.document_length(shorter, tokenizer.encode) < full
    assert shorter["messages"] == whole["messages"][: len(shorter["messages"])]
    none, counts = make(documents.quote_documents, tokenizer, budget=60)
    assert none == [] and counts["quote_too_long"] == 1


def test_a_repair_document_mends_faulty_lines_and_leaves_sound_ones(tokenizer: Tokenizer) -> None:
    mended, left = Counter[int](), Counter[int]()
    for seed in range(20):
        ((document,), _) = make(documents.repair_documents, tokenizer, seed)
        _, _, whole, *turns = messages_of(document)
        lines = whole.content.split("\n")
        seen: list[int] = []
        repairs = 0
        for turn, result in zip(turns[::2], turns[1::2], strict=True):
            (call,) = turn.calls
            if call.name == "read_file":
                number = int(call.arguments["line"].rstrip("|"))
                assert number not in seen, "no line is looked at twice"
                seen.append(number)
                assert result.content == lines[number - 1]
                continue
            old, new = call.arguments["old"], call.arguments["new"]
            code = lines[seen[-1] - 1].partition("|")[2]
            assert code.count(old) == 1
            lines[seen[-1] - 1] = f"{seen[-1]}|{code.replace(old, new)}"
            assert result == Message("tool", "ok")
            repairs += 1
        assert "\n".join(lines) == number_lines(SOURCE), "what was not edited was sound"
        assert turns[-2].calls[0].name == "edit_file"
        mended[repairs] += 1
        left[len(seen) - repairs] += 1
    assert set(mended) <= set(range(1, documents.MAX_FAULTS + 1)) and max(mended) > 1
    assert left[0] and max(left) > 1


def _edits(document) -> int:
    return sum(call["name"] == "edit_file" for m in document["messages"] for call in m["calls"])


def test_a_repair_document_has_the_faults_there_is_room_for(tokenizer: Tokenizer) -> None:
    wholes = {seed: make(documents.repair_documents, tokenizer, seed)[0][0] for seed in range(10)}
    several = {seed: whole for seed, whole in wholes.items() if _edits(whole) > 1}
    assert several
    for seed, whole in several.items():
        full = documents.document_length(whole, tokenizer.encode)
        ((shorter,), counts) = make(documents.repair_documents, tokenizer, seed, budget=full - 1)
        assert 1 <= _edits(shorter) < _edits(whole)
        assert counts == {"repair_shortened": 1}
        least = documents.document_length(shorter, tokenizer.encode)
        assert least < full


def test_what_offers_no_fault_or_no_room_is_counted(tokenizer: Tokenizer) -> None:
    plain = Sources([Function("m.py", "f", "def f(x):\n    print(x)\n    g(x)")], [])
    counts: Counter[str] = Counter()
    assert not list(documents.repair_documents(plain, 0, 250, tokenizer.encode, counts))
    assert counts == {"repair_without_mutation": 1}
    assert make(documents.repair_documents, tokenizer, budget=20)[1] == {"repair_too_long": 1}


def test_plain_documents_are_functions_and_files(tokenizer: Tokenizer) -> None:
    texts = {
        text
        for seed in range(8)
        for text in (d["text"] for d in make(documents.plain_documents, tokenizer, seed)[0])
    }
    assert texts == {SOURCE, number_lines(SOURCE), "x = 1"}


@pytest.mark.parametrize(
    "maker",
    [documents.quote_documents, documents.repair_documents, documents.plain_documents],
)
def test_documents_depend_on_the_seed_alone(maker, tokenizer: Tokenizer) -> None:
    assert make(maker, tokenizer, 3) == make(maker, tokenizer, 3)
