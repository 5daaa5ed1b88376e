"""Errors that are part of the public contract. A leaf: every package may import it."""

from typing import Any


class UserError(Exception):
    """Bad input. The message is one clear line that names the field or file and the remedy.

    A command line prints it and exits with code 2; nothing else is printed.
    """


def check_at_least(config: Any, minimum: float, *names: str) -> None:
    """Raises UserError where a field of `config`, or an element of one that is a tuple, is less.

    Called by the configs themselves, so that a value that cannot work ends a run before it starts.
    """
    for name in names:
        value = getattr(config, name)
        label = f"{type(config).__name__}.{name}"
        if value == () or not _at_least(value, minimum):
            raise UserError(f"{label} = {value!r} must be at least {minimum:g}")


def check_shares(config: Any, *names: str) -> None:
    """Raises UserError where a field of `config` is no probability."""
    check_at_least(config, 0, *names)
    for name in names:
        if getattr(config, name) > 1:
            label = f"{type(config).__name__}.{name}"
            raise UserError(f"{label} = {getattr(config, name)!r} must be at most 1")


def _at_least(value: Any, minimum: float) -> bool:
    if isinstance(value, tuple | list):
        return all(_at_least(element, minimum) for element in value)
    return bool(value >= minimum)  # not for nan
