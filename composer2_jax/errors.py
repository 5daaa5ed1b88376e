"""Errors that are part of the public contract. A leaf: every package may import it."""


class UserError(Exception):
    """Bad input. The message is one clear line that names the field or file and the remedy.

    A command line prints it and exits with code 2; nothing else is printed.
    """
