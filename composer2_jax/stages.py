"""Runs verbs one after another as child processes, and says honestly how long that will take.

Used by `quickstart.py`; nothing else imports it. The standard library and `files` only: the
children load jax.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from composer2_jax.files import read_json

# So much time, spent as expected, is the weight of what we believed before anything was measured.
_PRIOR_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """One verb with its own gin file and work directory, and how long it should take."""

    name: str
    verb: str
    expected_seconds: float
    gin_file: Path
    workdir: Path

    def done(self) -> bool:
        return (self.workdir / "done.json").exists()

    def seconds(self) -> float:
        """Seconds spent on it so far, over all restarts."""
        cost = read_json(self.workdir / "done.json") or read_json(self.workdir / "wall.json")
        return float(cost.get("wall_seconds", 0.0))


def config_digests(stages: Sequence[Stage], root: Path) -> dict[str, str]:
    """By stage, a digest of what its gin file and those of the stages before it say, bar comments.

    Includes are read from `root`. A stage starts from what the earlier ones made, so a change of
    one is a change of all after it.
    """
    sha, found = hashlib.sha256(), {}
    for stage in stages:
        sha.update("\n".join([stage.name, *_statements(stage.gin_file, root)]).encode())
        found[stage.name] = sha.hexdigest()
    return found


def _statements(gin_file: Path, root: Path) -> Iterator[str]:
    """The lines of a gin file without comments, included files in their places."""
    for line in gin_file.read_text(encoding="utf-8").splitlines():
        statement = line.partition("#")[0].rstrip()
        included = re.match(r"include\s+['\"](.+)['\"]", statement)
        if included and (root / included[1]).is_file():  # the verb says it if there is none
            yield from _statements(root / included[1], root)
        elif statement:
            yield statement


@dataclass(frozen=True)
class Estimate:
    """Seconds still to go: of one stage, and of the whole run."""

    stage: float
    run: float


def estimate(stages: Sequence[Stage], current: int) -> Estimate:
    """What is left at the start of stage `current`.

    The expected seconds of the stages to come are scaled by measured over expected seconds of
    those that are done, so a machine half as fast is told twice the time after the first stage.
    """
    finished = [stage for stage in stages if stage.done()]
    measured = sum(stage.seconds() for stage in finished)
    expected = sum(stage.expected_seconds for stage in finished)
    pace = (measured + _PRIOR_SECONDS) / (expected + _PRIOR_SECONDS)
    left = [
        max(0.0, stage.expected_seconds * pace - stage.seconds())
        for stage in stages
        if not stage.done()
    ]
    stage = stages[current]
    own = max(0.0, stage.expected_seconds * pace - stage.seconds())
    return Estimate(stage=own, run=sum(left))


def in_words(seconds: float) -> str:
    """A duration as one says it: "40 s", "3 min 20 s", "1 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass(frozen=True)
class Result:
    """How a child process ended: its exit code (128 + n for signal n) and its last words."""

    code: int
    last_line: str


def command(stage: Stage, seed: int) -> list[str]:
    """The command line that a person would type for this stage."""
    # -P: a file of the current directory must not stand in for a module.
    return [
        *(sys.executable, "-P", "-m", f"composer2_jax.{stage.verb}"),
        *(f"--gin_file={stage.gin_file}", f"--gin.SEED={seed}", f"--workdir={stage.workdir}"),
    ]


def run_stage(stage: Stage, seed: int, parent_variable: str) -> Result:
    """Runs one verb; its stderr is ours. An interrupt is passed on, and waited for."""
    environment = {
        **os.environ,
        "COLUMNS": str(shutil.get_terminal_size().columns),  # for bars behind the pipe
        parent_variable: str(os.getpid()),
    }
    child = subprocess.Popen(
        command(stage, seed),
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
        process_group=0,  # Ctrl-C comes to us alone, and we pass it on once
    )
    tail = bytearray()
    assert child.stderr is not None
    copier = threading.Thread(target=_copy, args=(child.stderr, tail), daemon=True)
    copier.start()
    try:
        code = child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        try:
            child.wait()
        except KeyboardInterrupt:  # a second Ctrl-C: what a checkpoint holds is safe
            child.kill()
            child.wait()
        raise
    copier.join(timeout=2)  # a grandchild may hold the pipe open
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
    return Result(code if code >= 0 else 128 - code, lines[-1] if lines else "")


def _copy(source: IO[bytes], tail: bytearray) -> None:
    """Copies a child's stderr to ours as it comes, and keeps the end of it."""
    while chunk := source.read(4096):
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        tail += chunk
        del tail[:-4096]
