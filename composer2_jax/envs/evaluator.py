"""Runs candidate functions on sampled calls: one child process, bounded in time and memory.

Task synthesis needs hundreds of thousands of calls, too many for a sandbox each. The code that runs
here is our own bank with one of our own faults in it, so limits are enough: it may loop or eat
memory, it does not attack. Imported by `synthesis`; imports the standard library.
"""

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

# The child answers each line of JSON with one: for each source the reprs of the calls' values, or
# what went wrong. Its clock is CPU time: a busy machine must not make a function seem endless.
_CHILD = """
import json, resource, signal, sys

class TooSlow(BaseException):
    pass

def stop(*_):
    raise TooSlow

def answer(source, code):
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))
        names = {}
        exec(source, names)
        return eval(code, names)
    except TooSlow:
        return "timeout"
    except Exception:
        return "raises"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

signal.signal(signal.SIGVTALRM, stop)
resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
for line in sys.stdin:
    sources, calls = json.loads(line)
    code = compile("[" + ",".join(f"repr({call})" for call in calls) + "]", "calls", "eval")
    print(json.dumps([answer(source, code) for source in sources]), flush=True)
"""


class Evaluator:
    """A child process that evaluates calls; started when first needed, restarted when it dies."""

    def __init__(self, seconds: float = 0.02) -> None:
        self._seconds = seconds
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def outputs(self, sources: Sequence[str], calls: Sequence[str]) -> list[list[str] | str]:
        """For each source, the repr of each call's value; "timeout", "raises" or "crash" if one
        call has none. A crash takes all sources of the request with it."""
        child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps([sources, calls]) + "\n")
        child.stdin.flush()
        # The child's own clock stops Python code; this one stops a call that never returns to it.
        ready, _, _ = select.select([child.stdout], [], [], 10.0)
        line = child.stdout.readline() if ready else ""
        if not line:
            self.close()
            return ["crash" if ready else "timeout"] * len(sources)
        return json.loads(line)

    def close(self) -> None:
        """Ends the child; a later call starts another."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _CHILD, str(self._seconds)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self._child
