"""The tokenizer gives every text back, and the agent's markers and line numbers cost one token."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composer2_jax.agent.markers import MARKERS
from composer2_jax.agent.transcript import encode_content
from composer2_jax.data.tokenizer import Tokenizer, train_tokenizer
from composer2_jax.errors import UserError

FRAGMENTS = (
    *MARKERS[:16],
    "7|",
    "64|",
    "65|",
    "\r\n",
    "\n",
    "\t",
    "    ",
    " ",
    "\u2581",
    "é",
    "\0",
)
TEXTS = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(FRAGMENTS)), max_size=12)
TRAINING = ["1|def f(x):\n2|    return x + 1", "if a < b and c >= d:", "exit 1", "error: no"] * 20


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=TEXTS)
def test_every_text_comes_back_exactly(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=TEXTS)
def test_a_marker_spelt_in_content_comes_back_and_is_no_control_token(
    tokenizer: Tokenizer, parts: list[str]
) -> None:
    ids = encode_content("".join(parts), tokenizer.encode)
    assert tokenizer.decode(ids) == "".join(parts)
    assert tokenizer.id_of("<|end|>") not in ids


@pytest.mark.parametrize(
    "text", ["\u2581", "a \u2581\u2581 b", "    \u2581x", "\ufeffx", "\x00\x07"]
)
def test_texts_that_collide_with_the_spelling_of_spaces_come_back(
    tokenizer: Tokenizer, text: str
) -> None:
    # A model that escapes spaces as U+2581 would return a space here.
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_marker_and_line_number_is_one_token(tokenizer: Tokenizer) -> None:
    for marker in MARKERS:
        assert tokenizer.encode(marker) == [tokenizer.id_of(marker)], marker
    with pytest.raises(KeyError, match="no such marker"):
        tokenizer.id_of("<|no such marker|>")


def test_markers_keep_their_tokens_between_other_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("x<|end|><|tool|>12|    return")
    for marker in ("<|end|>", "<|tool|>", "12|", "    "):
        assert tokenizer.id_of(marker) in ids


@pytest.mark.parametrize("text", ["\n", "    ", "        ", " <=", " //", " 7", " +="])
def test_indents_operators_and_spaced_digits_are_one_token(tokenizer: Tokenizer, text: str) -> None:
    assert len(tokenizer.encode(text)) == 1


def test_digits_of_a_number_are_tokens_of_their_own(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("1234")) == 4


def test_pad_and_end_of_text_cannot_be_spelt(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<pad></s><unk>")
    assert tokenizer.pad_id == 0
    assert not {tokenizer.pad_id, tokenizer.eos_id} & set(ids)


def test_equal_texts_give_an_equal_model(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_tokenizer(iter(TRAINING), tmp_path / name, vocab_size=490)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert not list(tmp_path.glob("*.partial"))


def test_a_vocabulary_that_cannot_be_filled_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vocab_size=100000") as error:
        train_tokenizer(iter(TRAINING), tmp_path / "a", vocab_size=100000)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a").exists()


def test_a_missing_or_damaged_model_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.model"):
        Tokenizer(tmp_path / "gone.model")
    (tmp_path / "bad.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"bad\.model"):
        Tokenizer(tmp_path / "bad.model")
