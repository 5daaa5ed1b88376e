"""What tests of real processes share."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Returns once `condition()` holds; fails the test where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """Whether a process of this id lives; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
