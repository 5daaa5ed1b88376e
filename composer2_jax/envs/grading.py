"""The outcome reward: hidden calls are evaluated on the final tree in a fresh sandbox.

The sandbox only evaluates: it prints the reprs of the hidden calls, and the host, which alone knows
the right ones, compares. Printing "PASSED", leaving early, changing the tests or planting a reward
file therefore gains nothing. A failure of the machinery is tagged and tried again; it is never a
reward. Imported by the environment and by task makers; imports the standard library only.
"""

import ast
import dataclasses
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from composer2_jax.envs import sandbox
from composer2_jax.envs.remembered import Remembered
from composer2_jax.envs.sandbox import InfraError, Limits
from composer2_jax.envs.task import Task, is_test_path
from composer2_jax.envs.workspace import Workspace, digest

TRIES = 3
MAX_REPR = 20_000
LIMITS = Limits(seconds=20.0, cpu_seconds=2, kept_bytes=2 << 20)

# Runs in the sandbox beside the agent's code, which may do as it likes there: it can only spoil its
# own answers. Importing nothing but built-in modules keeps it fast and out of reach of shadowing.
DRIVER = r"""
import sys
sys.path.pop(0)
import _signal, posix
nonce, path, seconds, longest, calls = eval(sys.stdin.buffer.read())
out = posix.dup(1)
null = posix.open("/dev/null", posix.O_RDWR)
posix.dup2(null, 0), posix.dup2(null, 1), posix.dup2(null, 2)
class Late(BaseException): pass
def late(*_): raise Late
_signal.signal(_signal.SIGPROF, late)
def timed(run, repr=repr, arm=_signal.setitimer, clock=_signal.ITIMER_PROF, str=str, type=type):
    try:
        arm(clock, seconds)
        text = run()
        arm(clock, 0)
        return str(text)[:longest]
    except Late:
        return "!late"
    except BaseException as error:
        arm(clock, 0)
        return "!" + type(error).__name__
def load():
    folder, _, name = path.rpartition("/")
    sys.path[:0] = ["/repo/" + folder, "/repo"]
    module = type(sys)(name[:-3])
    module.__file__ = "/repo/" + path
    sys.modules[module.__name__] = module
    with open(module.__file__, "rb") as file:
        exec(compile(file.read(), module.__file__, "exec"), module.__dict__)
    space.update(module.__dict__)
space, write, repr_, eval_ = {}, posix.write, repr, eval
answers = [timed(load)]
for call in calls:
    if answers[-1] == "!late":
        break
    answers.append(timed(lambda: repr_(eval_(call, dict(space)))))
data = ("%s\n%s\n%s\n" % (nonce, repr_(answers), nonce)).encode("utf-8", "backslashreplace")
while data:
    data = data[write(out, data):]
posix._exit(0)
"""


class OutOfTime(InfraError):
    """The time on the wall ran out: the machine was busy, or the code slept."""


@dataclass(frozen=True)
class Grade:
    """`reward` is 1.0 when every hidden call gave the right answer, else 0.0; it is None, and
    `infra_error` says why, when no verdict could be had."""

    reward: float | None
    passed: int = 0
    total: int = 0
    infra_error: str = ""
    remembered: bool = False
    seconds: float = 0.0


def grade(task: Task, workspace: Workspace) -> Grade:
    """Grades the final state of an episode's workspace; the workspace is only read."""
    return grade_files(task, graded_files(task, workspace.files()))


def graded_files(task: Task, final: Mapping[str, bytes]) -> dict[str, bytes]:
    """The tree that is graded: the agent's code and, whatever became of them, the task's tests.

    Files that steer how tests or the interpreter run are left out unless the task had them.
    """
    tree = {
        path: data for path, data in final.items() if path.endswith(".py") or path in task.files
    }
    tree = {path: data for path, data in tree.items() if not is_test_path(path)}
    for path, text in task.files.items():
        if is_test_path(path):
            tree[path] = text.encode("utf-8", "surrogateescape")
    return tree


_memory: Remembered[Grade] = Remembered()


def grade_files(task: Task, tree: Mapping[str, bytes]) -> Grade:
    """Grades a tree. The verdict depends on the task and the tree alone, so it is remembered."""
    began = time.monotonic()
    key = digest({**tree, "\0task": task.to_json().encode("utf-8", "surrogateescape")})
    verdict, remembered = _memory.get(key, lambda: _grade_patiently(task, tree))
    seconds = time.monotonic() - began
    return dataclasses.replace(verdict, remembered=remembered, seconds=seconds)


def _grade_patiently(task: Task, tree: Mapping[str, bytes]) -> tuple[Grade, bool]:
    """A verdict and True, or after several tries what went wrong and False.

    Time on the wall that ran out each time is a 0, since code that sleeps must not leave the
    group's statistics, but it is not remembered, since a busy machine must not decide for ever.
    """
    total = len(task.hidden_calls)
    verdict = Grade(None, 0, total)
    for _ in range(TRIES):
        try:
            return _grade_once(task, tree), True
        except OutOfTime:
            verdict = Grade(0.0, 0, total)
        except (InfraError, OSError) as error:
            verdict = Grade(None, 0, total, f"{type(error).__name__}: {error}")
    return verdict, False


def _grade_once(task: Task, tree: Mapping[str, bytes]) -> Grade:
    total = len(task.hidden_calls)
    if task.module not in tree:
        return Grade(0.0, 0, total)
    answers = evaluate(tree, task.module, task.hidden_calls)
    if answers is None or len(answers) != total:
        return Grade(0.0, 0, total)
    passed = sum(a == b for a, b in zip(answers, task.hidden_expected, strict=True))
    return Grade(1.0 if passed == total else 0.0, passed, total)


def evaluate(
    tree: Mapping[str, bytes],
    module: str,
    calls: tuple[str, ...],
    seconds: float = 0.1,
    limits: Limits = LIMITS,
) -> list[str] | None:
    """The reprs of `calls` evaluated beside `module`, or "!NameOfException" for one that raised.

    None when the tree gave no answer at all; fewer answers than calls when one took more than
    `seconds` of processor time. Raises `InfraError` when the sandbox failed, and its kind
    `OutOfTime` when the time on the wall ran out.
    """
    nonce = secrets.token_hex(16)
    request = repr((nonce, module, seconds, MAX_REPR, list(calls))).encode()
    argv = [sandbox.python(), "-s", "-S", "-B", "-c", DRIVER]
    with Workspace.of_files(tree) as workspace:
        result = sandbox.run(argv, workspace.path, limits, stdin=request, writable=False)
    if result.stopped == "time":
        raise OutOfTime(f"no answers within {limits.seconds:g} s")
    parts = result.output.split(nonce + "\n")
    if len(parts) != 3 or parts[2]:
        return None
    try:
        answers = ast.literal_eval(parts[1].strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(answers, list) or not all(isinstance(item, str) for item in answers):
        return None
    loaded, *rest = answers
    return rest if loaded == "None" else None
