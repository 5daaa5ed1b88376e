"""A fleet runs episodes side by side, survives its workers' deaths, and leaves nothing behind."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from composer2_jax.agent.call_format import parse_turn
from composer2_jax.envs import EnvConfig
from composer2_jax.envs.fleet import EnvFleet, InfraError
from composer2_jax.envs.workspace import ROOT_PREFIX
from tests.envs.samples import TASK, task, turn

SOLVE = "<|edit_file|>return x<|arg|>return min(x, hi)<|arg|>lib/clamp.py"


@pytest.fixture(scope="module")
def fleet() -> Iterator[EnvFleet]:
    with EnvFleet(2, 2, EnvConfig(max_turns=4)) as fleet:
        yield fleet


def test_episodes_run_side_by_side_and_keep_apart(fleet: EnvFleet) -> None:
    started = [fleet.reset(task(id=str(i))).result() for i in range(6)]
    assert len({result.episode for result in started}) == 6
    assert all(result.messages[0].content == TASK.prompt for result in started)
    for i, result in enumerate(started):
        if i % 2:
            assert fleet.step(result.episode, turn(SOLVE)).result().messages[0].content == "ok"
    ends = [fleet.step(result.episode, turn("<|finish|>")) for result in started]
    assert [end.result().reward for end in ends] == [0.0, 1.0] * 3
    assert all(end.result().done and end.result().info["seconds"] > 0 for end in ends)
    with pytest.raises(KeyError):
        fleet.step(started[0].episode, turn("<|finish|>"))


def test_a_malformed_turn_is_answered(fleet: EnvFleet) -> None:
    episode = fleet.reset(TASK).result().episode
    error = parse_turn("<|edit_file|>x<|end|>")
    result = fleet.step(episode, error).result()
    assert result.messages[0].content == "error: edit_file needs new"
    assert result.info["counts"]["malformed"] == 1
    fleet.close_episode(episode)


def test_a_slow_command_does_not_hold_up_other_episodes(fleet: EnvFleet) -> None:
    slow, quick = (fleet.reset(TASK).result().episode for _ in range(2))
    waiting = fleet.step(slow, turn("<|run_command|>sleep 4"))
    fleet.step(quick, turn("<|list_dir|>")).result()
    assert not waiting.done()
    assert waiting.result().messages[0].content == "exit 0"
    for episode in (slow, quick):
        fleet.close_episode(episode)


def test_a_dead_worker_fails_what_it_did_and_is_replaced(fleet: EnvFleet) -> None:
    episodes = [fleet.reset(task(id=str(i))).result().episode for i in range(4)]
    idle = [fleet.reset(task(id=str(i))).result().episode for i in range(4)]
    waiting = [fleet.step(episode, turn("<|run_command|>sleep 30")) for episode in episodes]
    time.sleep(0.2)
    for slot in fleet._slots:
        os.kill(slot.process.pid, signal.SIGKILL)
    for future in waiting:
        with pytest.raises(InfraError, match=r"worker \d died \(exit status -9\) during step"):
            future.result(timeout=10)
    # A worker that did nothing may not be missed yet when the next request comes.
    for episode in idle:
        with pytest.raises(InfraError, match=r"worker \d died \(exit status -9\) (before|during)"):
            fleet.step(episode, turn("<|list_dir|>")).result(timeout=10)
    again = fleet.reset(TASK).result(timeout=20)
    assert fleet.step(again.episode, turn("<|finish|>")).result(timeout=20).reward == 0.0


def test_an_episode_that_cannot_start_leaves_nothing(fleet: EnvFleet) -> None:
    with pytest.raises(InfraError, match="File name too long"):
        fleet.reset(task(files={**TASK.files, "x" * 300: ""})).result()
    assert not fleet._episodes and not any(slot.alive for slot in fleet._slots)


def test_a_closed_fleet_leaves_no_process_and_no_workspace() -> None:
    fleet = EnvFleet(1, 1)
    episode = fleet.reset(TASK).result().episode
    pid = fleet._slots[0].process.pid
    waiting = fleet.step(episode, turn("<|run_command|>sleep 30"))
    mine = {name for name in os.listdir("/dev/shm") if name.startswith(ROOT_PREFIX)}
    began = time.monotonic()
    fleet.close()
    assert time.monotonic() - began < 5.0
    with pytest.raises(InfraError, match="closed"):
        waiting.result(timeout=5)
    with pytest.raises(InfraError, match="closed"):
        fleet.reset(TASK).result(timeout=5)
    assert not os.path.exists(f"/proc/{pid}")
    assert len({n for n in os.listdir("/dev/shm") if n.startswith(ROOT_PREFIX)} & mine) < len(mine)


def test_a_worker_that_cannot_start_ends_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    fleet = EnvFleet(1, 1)
    with pytest.raises(InfraError, match="died"):
        for _ in range(20):
            fleet.reset(TASK).result(timeout=5)
    deadline = time.monotonic() + 5
    while not fleet._slots[0].broken and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(InfraError, match="3 times before any work"):
        fleet.reset(TASK).result(timeout=5)
    fleet.close()
