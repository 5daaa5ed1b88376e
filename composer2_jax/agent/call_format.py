"""Our own text form of an assistant turn, rendered and parsed strictly.

    content? (<|tool|>first argument<|arg|>second argument...)* <|end|>

Arguments are positional in the order of `tool_schemas`; trailing ones may be left out, and an empty
one means the tool's default and is dropped. A turn is accepted whole or not at all: a malformed one
becomes a `ParseError` whose text the model reads as the tool's answer, and nothing is dispatched.
Imports the standard library only.
"""

from dataclasses import dataclass

from composer2_jax.agent.markers import ARG, END, MARKER_PATTERN, ROLE_MARKERS, tool_marker
from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.agent.tool_schemas import SCHEMAS, check_call


@dataclass(frozen=True)
class ParseError:
    """Why a turn was refused (`text`, for the model) and the turn as it was (`raw`)."""

    text: str
    raw: str = ""

    def as_message(self) -> Message:
        """The assistant message that carries the error to the environment."""
        return Message("assistant", self.raw, (), self.text)


def render_call(call: ToolCall) -> str:
    """A call in our format; raises ValueError on a call that the parser would refuse."""
    problem = check_call(call.name, call.arguments)
    if problem:
        raise ValueError(problem)
    values = [call.arguments.get(p.name) for p in SCHEMAS[call.name].parameters]
    while values and values[-1] is None:
        values.pop()
    texts = [value or "" for value in values]
    # A lone empty argument is the same as none; a required one must stay visible as a separator.
    if len(texts) == 1 and not texts[0]:
        texts = []
    for text in texts:
        if MARKER_PATTERN.search(text):
            raise ValueError(f"{call.name}: a marker inside an argument cannot be rendered")
    return tool_marker(call.name) + ARG.join(texts)


def render_turn(message: Message) -> str:
    """An assistant message as text that `parse_turn` reads back to an equal message."""
    if message.role != "assistant":
        raise ValueError(f"only an assistant message is a turn, not a {message.role} message")
    if MARKER_PATTERN.search(message.content):
        raise ValueError("a marker inside the content cannot be rendered")
    return message.content + "".join(render_call(call) for call in message.calls) + END


def parse_turn(text: str) -> Message | ParseError:
    """The assistant message that `text` is, or a `ParseError` that says what is wrong with it."""
    body, ended, rest = text.partition(END)
    problem = ""
    if not ended:
        problem = "turn has no end"
    elif rest:
        problem = "text after the end"
    else:
        parsed = _parse_body(body)
        if isinstance(parsed, Message):
            return parsed
        problem = parsed
    return ParseError(f"error: {problem}", text)


def _parse_body(body: str) -> Message | str:
    """The message before the end marker, or the problem with it."""
    first = MARKER_PATTERN.search(body)
    if first is None:
        return Message("assistant", body)
    content = body[: first.start()]
    if content.count("```") % 2:
        return "call inside a code fence"
    if content.count("<think>") > content.count("</think>"):
        return "call inside thinking"
    calls: list[ToolCall] = []
    for name, values in _split_calls(body, first.start()):
        if tool_marker(name) in ROLE_MARKERS.values():
            return f"{name} marker inside a turn"
        if name == "arg":
            return "argument before any call"
        if name not in SCHEMAS:
            return f"unknown tool {name[:32]}"
        parameters = SCHEMAS[name].parameters
        if values == [""]:
            values = values[: len(parameters)]
        if len(values) > len(parameters):
            return f"{name} takes {len(parameters)} arguments, not {len(values)}"
        arguments = {
            p.name: value
            for p, value in zip(parameters, values, strict=False)
            if value or p.required
        }
        problem = check_call(name, arguments)
        if problem:
            return problem
        calls.append(ToolCall(name, arguments))
    return Message("assistant", content, tuple(calls))


def _split_calls(body: str, start: int) -> list[tuple[str, list[str]]]:
    """(marker name, argument texts) of each call; a stray marker shows up as a call of its name."""
    calls: list[tuple[str, list[str]]] = []
    markers = list(MARKER_PATTERN.finditer(body, start))
    ends = [marker.start() for marker in markers[1:]] + [len(body)]
    for marker, end in zip(markers, ends, strict=True):
        value = body[marker.end() : end]
        if marker[0] == ARG and calls:
            calls[-1][1].append(value)
        else:
            calls.append((marker[1], [value]))
    return calls


def number_lines(text: str, first: int = 1) -> str:
    """`text` with a line marker before each line: "7|code", joined by newlines.

    Only a line feed ends a line (as in git and grep); a carriage return before it is not shown.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    return "\n".join(f"{n}|{line.removesuffix(chr(13))}" for n, line in enumerate(lines, first))
