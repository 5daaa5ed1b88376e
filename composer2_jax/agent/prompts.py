"""How a conversation opens: system text, tool descriptions, recent files, the task.

The parts follow the report's prompt: a system message, the specification of the tools, information
on recent files, and the user's request. A tiny model that was trained on the format needs none of
the first three, so all are off by default. Imports the standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from composer2_jax.agent.messages import Message
from composer2_jax.agent.tool_schemas import SCHEMAS, ToolSchema


@dataclass(frozen=True)
class PromptConfig:
    """What stands before the task.

    system: text of the system message; describe_tools: add what each tool does and takes;
    recent_files: how many of the files seen last are named before the task.
    """

    system: str = ""
    describe_tools: bool = False
    recent_files: int = 0


def describe(schemas: Mapping[str, ToolSchema]) -> str:
    """The tools as text, one a line, each with its parameters."""
    lines = []
    for schema in schemas.values():
        parameters = ", ".join(
            f"{p.name}: {p.description}" + (" (required)" if p.required else "")
            for p in schema.parameters
        )
        lines.append(f"{schema.name}({parameters}): {schema.description}")
    return "\n".join(lines)


def opening(
    task_prompt: str,
    recent_files: Sequence[str] = (),
    config: PromptConfig | None = None,
    tools: Sequence[str] = tuple(SCHEMAS),
) -> tuple[Message, ...]:
    """The messages before the first turn."""
    config = config or PromptConfig()
    system = [config.system] if config.system else []
    if config.describe_tools:
        system.append("Tools:\n" + describe({name: SCHEMAS[name] for name in tools}))
    shown = recent_files[: config.recent_files]
    user = f"Recent files: {', '.join(shown)}\n{task_prompt}" if shown else task_prompt
    messages = [Message("system", "\n\n".join(system))] if system else []
    return (*messages, Message("user", user))
