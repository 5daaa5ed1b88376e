"""The control markers of our chat format; each is a single token of our tokenizer.

Role markers open a message, a tool marker opens a call, `<|arg|>` separates arguments and `<|end|>`
ends an assistant turn. Line numbers ("7|") are single tokens too, so that naming a line costs one
token. Imported by the tokenizer (as user-defined symbols), the call format and the transcript;
imports the standard library only.
"""

import re

USER = "<|user|>"
ASSISTANT = "<|assistant|>"
TOOL = "<|tool|>"
SYSTEM = "<|system|>"
END = "<|end|>"
ARG = "<|arg|>"

ROLE_MARKERS: dict[str, str] = {
    "user": USER,
    "assistant": ASSISTANT,
    "tool": TOOL,
    "system": SYSTEM,
}
TOOL_NAMES: tuple[str, ...] = (
    "read_file",
    "search",
    "edit_file",
    "undo_edit",
    "run_command",
    "list_dir",
    "todo_write",
    "finish",
)
MAX_LINE_MARKER = 64


def tool_marker(name: str) -> str:
    """The marker that opens a call of the tool `name`."""
    return f"<|{name}|>"


CONTROL_MARKERS: tuple[str, ...] = (
    *(ROLE_MARKERS[role] for role in ("user", "assistant", "tool", "system")),
    END,
    ARG,
    *(tool_marker(name) for name in TOOL_NAMES),
)
LINE_MARKERS: tuple[str, ...] = tuple(f"{n}|" for n in range(1, MAX_LINE_MARKER + 1))
MARKERS: tuple[str, ...] = CONTROL_MARKERS + LINE_MARKERS

# Anything shaped like a control marker, known or not: an unknown one is a call of an unknown tool.
MARKER_PATTERN = re.compile(r"<\|([A-Za-z_][A-Za-z0-9_]*)\|>")
