"""Conversations to ids and loss mask: the loss falls on the agent's own tokens only.

The framing is `agent.transcript`'s, the same that rollouts and serving use, so that a model is
trained on exactly the ids it will see. Imports `agent` only.
"""

from collections.abc import Sequence

from composer2_jax.agent.call_format import render_turn
from composer2_jax.agent.messages import Message
from composer2_jax.agent.transcript import Encoder, Transcript

ASSISTANT_ROLE = "assistant"


def conversation_to_ids(
    messages: Sequence[Message], encode: Encoder, trained: Sequence[bool] | None = None
) -> tuple[list[int], list[int]]:
    """The ids of a conversation and 1 where an id is trained as a target.

    `trained` says for each assistant turn whether it is worth learning (a scripted wrong edit is
    not); without it all are. Role markers, prompts and tool results are never trained on.
    """
    turns = sum(message.role == ASSISTANT_ROLE for message in messages)
    flags = iter([True] * turns if trained is None else trained)
    if trained is not None and len(trained) != turns:
        raise ValueError(f"{len(trained)} trained flags for {turns} assistant turns")
    transcript = Transcript()
    for message in messages:
        if message.role != ASSISTANT_ROLE:
            transcript.append_message(message, encode)
            continue
        transcript.open_turn(encode)
        # A turn that could not be parsed is kept as it was sampled, markers and all.
        ids = encode(message.content if message.error else render_turn(message))
        if next(flags):
            transcript.append_sampled(ids, [0.0] * len(ids), 0)
        else:
            transcript.append_harness(ids)
    return transcript.tokens, transcript.mask
