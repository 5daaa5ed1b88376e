"""Saving and restoring training state with Orbax. May import `model` and `core`."""
