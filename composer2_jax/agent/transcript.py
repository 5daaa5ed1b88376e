"""The token record of one episode: tokens in, tokens out.

What the model sampled is stored as the ids it sampled and is never decoded and encoded again; what
the harness adds (role markers, prompts, tool results) is encoded once and has mask 0. Training and
serving therefore see the same ids, and every prompt extends the one before it. Imported by the
data pipeline, the rollout and the evaluation; imports the standard library only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from composer2_jax.agent.call_format import render_turn
from composer2_jax.agent.markers import ASSISTANT, END, MARKER_PATTERN, ROLE_MARKERS
from composer2_jax.agent.messages import Message

Encoder = Callable[[str], list[int]]

HARNESS_VERSION = -1


def encode_content(text: str, encode: Encoder) -> list[int]:
    """Ids of text that is not ours to trust: a marker spelt in it never becomes a control token.

    The text is cut inside each such marker and the parts are encoded apart, so decoding still gives
    the exact text back.
    """
    ids: list[int] = []
    start = 0
    for match in MARKER_PATTERN.finditer(text):
        cut = match.start() + 1
        ids.extend(encode(text[start:cut]))
        start = cut
    ids.extend(encode(text[start:]))
    return ids


def message_ids(message: Message, encode: Encoder) -> list[int]:
    """Ids of a whole message as the harness writes it, its role marker first."""
    head = encode(ROLE_MARKERS[message.role])
    if message.role == "assistant":
        return head + encode(render_turn(message))
    return head + encode_content(message.content, encode)


@dataclass
class Transcript:
    """Aligned lists, one entry a token. `mask` is 1 on sampled tokens; `versions` holds the weight
    version that sampled a token, `HARNESS_VERSION` on the harness's own."""

    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    _prompt: list[int] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def append_harness(self, ids: Sequence[int]) -> None:
        """Tokens that the harness wrote: never trained on."""
        self._append(ids, 0, [0.0] * len(ids), [HARNESS_VERSION] * len(ids))

    def append_sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int] | int
    ) -> None:
        """Tokens that the model sampled after `prompt()`, exactly as it sampled them."""
        if isinstance(versions, int):
            versions = [versions] * len(ids)
        if not len(ids) == len(logprobs) == len(versions):
            raise ValueError(
                f"{len(ids)} ids, {len(logprobs)} logprobs and {len(versions)} versions"
            )
        self._append(ids, 1, logprobs, versions)

    def append_message(self, message: Message, encode: Encoder) -> None:
        """A message written by the harness; an empty system message leaves no trace."""
        if message.role == "system" and not message.content:
            return
        self.append_harness(message_ids(message, encode))

    def open_turn(self, encode: Encoder) -> None:
        """The assistant marker: the next token is the model's."""
        self.append_harness(encode(ASSISTANT))

    def open_conversation(self, messages: Sequence[Message], encode: Encoder) -> None:
        """The opening messages and the marker of the first turn."""
        for message in messages:
            self.append_message(message, encode)
        self.open_turn(encode)

    def end_cut_turn(self, encode: Encoder) -> None:
        """Ends a turn that the sampler cut short: the end marker is then the harness's, mask 0, so
        that the model is never credited with a token it did not choose. Whether a turn was cut is
        the sampler's to say: more than one token may end a turn."""
        self.append_harness(encode(END))

    def prompt(self) -> list[int]:
        """The ids to sample after. Each prompt must extend the last one: a cache of its prefix is
        then valid, and no earlier token has changed its meaning."""
        if self.tokens[: len(self._prompt)] != self._prompt:
            raise AssertionError("the transcript no longer extends the last prompt")
        self._prompt = list(self.tokens)
        return list(self.tokens)

    def _append(
        self,
        ids: Sequence[int],
        mask: int,
        logprobs: Sequence[float],
        versions: Sequence[int],
    ) -> None:
        self.tokens.extend(int(token) for token in ids)
        self.mask.extend([mask] * len(ids))
        self.logprobs.extend(float(logprob) for logprob in logprobs)
        self.versions.extend(int(version) for version in versions)
