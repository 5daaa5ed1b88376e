"""The tokenizer: a SentencePiece BPE with byte fallback, trained in place.

The control markers and the line numbers of the agent's call format are single tokens, and so are a
newline, each level of indentation and each spaced operator: tokens are dear at this size, and a
line number that is one token is easy to look up. Every text comes back exactly. Imported by verbs,
`data`, `rl` and `evals`.
"""

import hashlib
import io
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from composer2_jax.agent.markers import MARKERS
from composer2_jax.errors import UserError
from composer2_jax.files import write_atomic

PAD_ID, EOS_ID, UNK_ID = 0, 1, 2
INDENT_LEVELS = 8
# As `ast.unparse` spaces them. An operator or a digit is what most edits are about.
OPERATORS = (
    *("<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "//", "%", "**", "&", "|", "^"),
    *("=", "+=", "-=", "*=", "//="),
)

# SentencePiece spells a space as U+2581. A U+2581 of the text itself would come back as a space, so
# it is written with its three byte pieces instead.
SPACE_PIECE = "\u2581"
SPACE_PIECE_BYTES = tuple(f"<0x{byte:02X}>" for byte in SPACE_PIECE.encode())


def train_tokenizer(texts: Iterable[str], path: Path, vocab_size: int = 1024) -> None:
    """Trains on `texts` and writes the model file; equal texts give an equal file."""
    indents = [SPACE_PIECE * 4 * level for level in range(1, INDENT_LEVELS + 1)]
    spaced = [SPACE_PIECE + text for text in (*OPERATORS, *string.digits)]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            split_digits=True,
            # Every printable ASCII character is a piece; the long tail is spelt in bytes.
            required_chars="".join(sorted(set(string.printable) - set(string.whitespace))),
            character_coverage=0.9995,
            user_defined_symbols=[*MARKERS, "\n", "\t", "\r", *indents, *spaced],
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=-1,
            # Longer texts would be left out without a word.
            max_sentence_length=1 << 24,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"train_tokenizer.vocab_size={vocab_size}: {reason}") from error
    write_atomic(path, model.getvalue())


class Tokenizer:
    """Text to ids and back; `decode(encode(text)) == text` for every text that UTF-8 can hold."""

    def __init__(self, path: str | Path):
        try:
            proto = Path(path).read_bytes()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; make it with prepare_data") from error
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except RuntimeError as error:
            raise UserError(f"{path}: not a SentencePiece model; run prepare_data again") from error
        self.digest = hashlib.sha256(proto).hexdigest()
        self.vocab_size: int = self._model.vocab_size()
        self.pad_id: int = self._model.pad_id()
        self.eos_id: int = self._model.eos_id()
        self._space_ids = [self._model.piece_to_id(piece) for piece in SPACE_PIECE_BYTES]

    def encode(self, text: str) -> list[int]:
        if SPACE_PIECE not in text:
            return self._model.encode(text)
        first, *rest = text.split(SPACE_PIECE)
        ids = self._model.encode(first)
        for part in rest:
            ids += self._space_ids + self._model.encode(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`. Bytes that are not UTF-8, which a model may sample, become U+FFFD."""
        return self._model.decode([int(token) for token in ids])

    def id_of(self, marker: str) -> int:
        """The id of a marker, or of any other text that is a single piece."""
        token = self._model.piece_to_id(marker.replace(" ", SPACE_PIECE))
        if token == UNK_ID:
            raise KeyError(f"{marker!r} is not a single token")
        return token
