"""An episode: reset, turns of tool calls, a verdict; and the contract of gymnasium."""

import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from composer2_jax.agent.messages import Message
from composer2_jax.envs import ENV_ID, CodingEnv, EnvConfig
from tests.envs.samples import TASK, task, turn


def answers(env: CodingEnv, text: str) -> list[str]:
    return [message["content"] for message in env.step(turn(text))[0]]


@pytest.fixture
def env() -> CodingEnv:
    env = CodingEnv(TASK, EnvConfig(diff=True))
    env.reset()
    return env


def test_gymnasium_accepts_the_environment() -> None:
    env = gymnasium.make(ENV_ID, task=TASK)
    check_env(env.unwrapped)
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    assert env.action_space.sample() in env.action_space
    assert {"role": "tool", "content": "x"} not in env.action_space
    env.close()


def test_the_way_of_a_solver(env: CodingEnv) -> None:
    assert answers(env, "<|search|>") == ["lib/clamp.py:1|def clamp(x, lo, hi):"]
    assert answers(env, "<|read_file|>")[0].endswith("\n4|    return x")
    assert answers(env, "<|run_command|>") == ["exit 1"]
    assert answers(env, "<|read_file|>4|") == ["4|    return x"]
    assert answers(env, "<|edit_file|>return x<|arg|>return min(x, hi)") == ["ok"]
    assert answers(env, "<|run_command|>") == ["exit 0"]
    messages, reward, terminated, truncated, info = env.step(turn("<|finish|>"))
    assert (messages, reward, terminated, truncated) == ([], 1.0, True, False)
    assert info["grade"]["passed"] == 3 and info["turns"] == 7 and info["tool_errors"] == 0
    assert info["counts"]["run_command"] == 2
    assert "-    return x\n+    return min(x, hi)" in info["diff"]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(turn("<|finish|>"))


def test_several_calls_of_a_turn_give_several_answers(env: CodingEnv) -> None:
    assert answers(env, "<|list_dir|><|list_dir|>lib") == ["lib/\ntest.py", "clamp.py\nother.py"]
    messages, *_, terminated, _truncated, _info = env.step(turn("<|list_dir|>lib<|finish|>"))
    assert len(messages) == 1 and terminated


def test_an_episode_cut_at_its_last_turn_is_graded() -> None:
    env = CodingEnv(TASK, EnvConfig(max_turns=2))
    env.reset()
    assert env.step(turn("<|read_file|><|arg|>lib/clamp.py"))[1:4] == (0.0, False, False)
    result = env.step(turn("<|edit_file|>return x<|arg|>return min(x, hi)"))
    assert result[1:4] == (1.0, False, True)
    assert result[0][0]["content"] == "ok"


def test_a_tool_that_is_not_on_offer_is_unknown() -> None:
    env = CodingEnv(TASK, EnvConfig(tools=("read_file", "finish")))
    env.reset()
    assert answers(env, "<|run_command|>") == ["error: unknown tool run_command"]


def test_output_is_shown_within_its_budget() -> None:
    env = CodingEnv(TASK, EnvConfig(output_chars=40))
    env.reset()
    assert answers(env, "<|run_command|>echo hello; exit 3") == ["exit 3\nhello"]
    answer = answers(env, "<|run_command|>seq 1000")[0]
    assert answer.startswith("exit 0\n1\n2\n") and "left out" in answer and answer.endswith("1000")


def test_tests_are_remembered_only_for_an_equal_tree() -> None:
    tests = "import os\nfrom lib.clamp import clamp\nassert clamp(5, 0, 3) == 3\n"
    env = CodingEnv(
        task(id="remembered", files={**TASK.files, "test.py": tests}),
        EnvConfig(remember_tests=True),
    )
    env.reset()
    edit = "<|edit_file|>return x<|arg|>return min(x, hi)<|arg|>lib/clamp.py"
    shown = [answers(env, "<|run_command|>")[0] for _ in range(2)]
    answers(env, edit)
    shown.append(answers(env, "<|run_command|>")[0])
    answers(env, "<|undo_edit|>")
    shown.append(answers(env, "<|run_command|>")[0])
    assert shown == ["exit 1", "exit 1", "exit 0", "exit 1"]
    assert env.step(turn("<|finish|>"))[4]["counts"]["remembered_tests"] == 2


def test_tests_that_change_the_tree_are_run_each_time() -> None:
    env = CodingEnv(
        task(id="writes", test_command="echo x >> log; exit $(wc -l < log)"),
        EnvConfig(remember_tests=True),
    )
    env.reset()
    assert [answers(env, "<|run_command|>")[0] for _ in range(2)] == ["exit 1", "exit 2"]
    answers(env, "<|run_command|>rm log")
    assert answers(env, "<|run_command|>") == ["exit 1"]
    assert answers(env, "<|run_command|>cat log") == ["exit 0"]


def test_a_reset_starts_anew_and_may_change_the_task(env: CodingEnv) -> None:
    answers(env, "<|edit_file|>return x<|arg|>return hi<|arg|>lib/clamp.py")
    observation, info = env.reset(options={"task": task(id="other", prompt="hello")})
    assert observation == [Message("user", "hello").to_dict()]
    assert info["task_id"] == "other" and info["turns"] == 0
    assert answers(env, "<|undo_edit|>") == ["error: no edit to undo"]


def test_open_items_are_counted(env: CodingEnv) -> None:
    answers(env, "<|todo_write|>[x] read\ntest\nfinish")
    assert env.step(turn("<|finish|>"))[4]["todo_open"] == 2


def test_the_environment_loads_no_accelerator() -> None:
    script = "import sys, composer2_jax.envs.worker as w; print('jax' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert shown.stdout == "False\n", shown.stderr


def test_names_that_are_not_text_are_answered_as_text() -> None:
    env = CodingEnv(TASK)
    env.reset()
    env.step(turn("<|run_command|>touch \"$(printf 'a\\377b')\""))
    (answer,) = env.step(turn("<|list_dir|>"))[0]
    assert "a\ufffdb" in answer["content"].replace("\ufffd\ufffd\ufffd", "\ufffd")
    answer["content"].encode()
    env.close()
