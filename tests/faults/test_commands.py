"""Commands end in bounded time with bounded output, leave no process behind, and see no host."""

import os
import subprocess
import time

import pytest

from composer2_jax.envs import sandbox
from composer2_jax.envs.sandbox import CommandResult, Limits
from composer2_jax.envs.supervise import HeadTail
from composer2_jax.envs.tools.shell import clean, clip
from composer2_jax.envs.workspace import Workspace
from tests.envs.samples import TASK


def run(command: str, **limits: float) -> tuple[CommandResult, float]:
    """The result of a command in a fresh workspace, and the seconds it took."""
    with Workspace.of_task(TASK) as workspace:
        began = time.monotonic()
        result = sandbox.run(["sh", "-c", command], workspace.path, Limits(**limits))  # type: ignore[arg-type]
        return result, time.monotonic() - began


def survivors(mark: str) -> list[str]:
    shown = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True).stdout
    return [line for line in shown.splitlines() if mark in line and not line.startswith("Z")]


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        ("sleep 6001 & echo done", "6001"),
        ("setsid sleep 6002 & echo done", "6002"),
        ("(trap '' TERM HUP; setsid sleep 6003 </dev/null &) ; echo done", "6003"),
        ("nohup sh -c 'while :; do echo 1 > reward.txt; sleep 0.6004; done' & echo done", "6004"),
    ],
)
def test_background_children_neither_delay_a_command_nor_outlive_it(
    command: str, mark: str
) -> None:
    result, seconds = run(command)
    assert "done" in result.output and result.exit_code == 0
    assert seconds < 2.0
    assert not survivors(mark)


def test_a_command_that_ignores_signals_is_ended_with_all_its_children() -> None:
    command = "trap '' TERM; setsid sleep 6011 & (sleep 6012 &) ; sleep 6013"
    result, seconds = run(command, seconds=0.5)
    assert (result.exit_code, result.stopped) == (124, "time")
    assert seconds < 3.0
    assert not survivors("601")


def test_a_stopped_command_leaves_the_workspace_usable() -> None:
    with Workspace.of_task(TASK) as workspace:
        sandbox.run(["sleep", "60"], workspace.path, Limits(seconds=0.3))
        assert sandbox.run(["echo", "ok"], workspace.path).output == "ok\n"


def test_a_fork_loop_is_held_and_ended() -> None:
    script = "import os\nwhile 1:\n try: os.fork()\n except OSError: pass"
    result, seconds = run(f'{sandbox.python()} -c "{script}"', seconds=0.5, processes=16)
    assert result.stopped == "time"
    assert seconds < 3.0
    assert not survivors("os.fork()")


def test_standard_input_is_at_its_end() -> None:
    result, seconds = run("cat; read x; echo $?")
    assert result.output == "1\n" and seconds < 2.0


def test_a_command_may_close_its_output() -> None:
    result, _ = run("exec 1>&- 2>&-; exit 3")
    assert (result.exit_code, result.output) == (3, "")


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_status_is_kept(command: str, code: int) -> None:
    assert run(command)[0].exit_code == code


def test_endless_output_is_cut_and_stopped() -> None:
    result, seconds = run("yes", output_bytes=1 << 20, kept_bytes=1000)
    assert result.stopped == "output" and seconds < 2.0
    assert "bytes left out" in result.output and len(result.output) < 2100


def test_much_output_keeps_head_tail_and_exit_status() -> None:
    result, _ = run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; exit 5")
    assert result.exit_code == 5 and result.stopped == ""
    assert result.output.startswith("first\n") and result.output.endswith("\nlast\n")
    assert "bytes left out" in result.output and len(result.output) < 70_000


def test_binary_output_becomes_valid_text() -> None:
    result, _ = run("cat /bin/ls; printf '\\033[31mred\\033[0m \\377'")
    shown = clean(result.output)
    assert "red" in shown and "\x1b" not in shown and "\0" not in shown
    shown.encode()


def test_a_cut_never_splits_a_character() -> None:
    for kept in range(4, 12):
        buffer = HeadTail(kept)
        for byte in ("é€😀" * 20).encode():
            buffer.add(bytes([byte]))
        assert "\ufffd" not in buffer.text() and "left out" in buffer.text()
        assert len(buffer.tail) <= 2 * kept


def test_output_within_its_budget_is_untouched_and_beyond_it_is_marked() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdefg", 4) == "ab\n[... 3 characters left out ...]\nfg"


def test_the_host_cannot_be_seen_or_changed() -> None:
    os.environ["SECRET_OF_THE_HOST"] = "shh"
    result, _ = run(
        "env; cat /proc/*/environ; cat /etc/shadow; ls /home /root /var; "
        "touch /usr/planted /planted; mount -o remount,rw /usr; unshare -U true; "
        "grep CapEff /proc/self/status; id -u"
    )
    assert "shh" not in result.output and "root:" not in result.output
    assert "CapEff:\t0000000000000000" in result.output
    assert result.output.endswith(f"{sandbox.user()}\n") and sandbox.user() != 0
    assert not os.path.exists("/usr/planted")


def test_there_is_no_network() -> None:
    script = "import socket; socket.create_connection(('127.0.0.1', 22), 1)"
    assert run(f'{sandbox.python()} -c "{script}"')[0].exit_code != 0
    result, _ = run("cat /proc/net/route; ls /sys/class/net")
    assert "eth" not in result.output


def test_memory_disk_and_processor_time_are_bounded() -> None:
    hog = f"{sandbox.python()} -c 'x = bytearray(1 << 29)'"
    assert "MemoryError" in run(hog, memory_bytes=1 << 28)[0].output
    full = "head -c 9000000 /dev/zero > /tmp/x; echo $?"
    assert "No space left" in run(full, tmp_bytes=1 << 20)[0].output
    big = "head -c 9000000 /dev/zero > x; wc -c < x"
    assert run(big, file_bytes=1 << 20)[0].output.endswith("1048576\n")
    result, seconds = run("while :; do :; done", seconds=30.0, cpu_seconds=1)
    assert result.exit_code in (137, 152) and seconds < 10.0


def test_a_workspace_that_grows_too_large_ends_the_command() -> None:
    fill = "for i in 1 2 3 4 5 6 7 8; do head -c 4000000 /dev/zero > f$i; done; sleep 60"
    result, seconds = run(fill, directory_bytes=8 << 20)
    assert (result.exit_code, result.stopped) == (137, "disk") and seconds < 5.0
