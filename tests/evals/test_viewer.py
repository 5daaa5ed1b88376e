"""Every turn is shown with its own result, diffs read as diffs, and the verb is well-behaved."""

from pathlib import Path

import pytest

from composer2_jax import view
from composer2_jax.errors import UserError
from composer2_jax.evals.viewer import (
    diff_html,
    episode_text,
    trajectory_html,
    turns,
    write_viewer,
)
from tests.evals.synthetic import HOSTILE, assistant, call, episode, make_run, tool, write_jsonl


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    return make_run(tmp_path) / "eval_rl"


def test_results_belong_to_the_turn_that_called() -> None:
    messages = [
        {"role": "user", "content": "task"},
        assistant(call("search"), call("read_file")), tool("hit"), tool("1|x"),
        assistant(content="not a call"), tool("error: no such tool"),
        assistant(call("finish")),
    ]  # fmt: skip
    answers = [[m["content"] for m in results] for _, results in turns({"messages": messages})]
    assert answers == [["hit", "1|x"], ["error: no such tool"], []]


def test_a_turn_that_could_not_be_parsed_is_shown_with_its_complaint() -> None:
    record = {**episode(0, 0, False), "messages": [assistant(content="<b>"), tool("error: eh")]}
    page = trajectory_html(record)
    assert "&lt;b&gt;" in page and '<pre class="result error">error: eh</pre>' in page


def test_nothing_that_an_episode_holds_reaches_the_page_unescaped() -> None:
    record = episode(0, 0, True)
    for key in ("task_id", "function", "fault_kind", "diff"):
        record[key] = HOSTILE
    record["messages"] = [
        {"role": "user", "content": HOSTILE},
        assistant(call(HOSTILE, **{HOSTILE: HOSTILE}), content=HOSTILE),
        tool(HOSTILE),
        assistant(call("edit_file", old=HOSTILE, new=HOSTILE + "\n"), content=""),
        assistant(call("edit_file", old=HOSTILE, new="x"), content=""),
    ]
    for folded in (False, True):
        page = trajectory_html(record, folded=folded)
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_commands_are_coloured_by_their_exit_code() -> None:
    page = trajectory_html(episode(0, 0, True))
    assert '<pre class="result ok">exit 0</pre>' in page
    assert '<pre class="result error">exit 1' in page


def test_a_replaced_line_has_only_its_changed_part_marked() -> None:
    html = diff_html("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-if x > low:\n+if x < low:\n same\n")
    assert 'data-sign="-">if x <mark>&gt;</mark> low:' in html
    assert 'data-sign="+">if x <mark>&lt;</mark> low:' in html
    assert html.count("<mark>") == 2


def test_a_pure_insertion_marks_nothing_in_the_removed_line() -> None:
    html = diff_html("@@ -1 +1 @@\n-aa\n+aaa\n")
    assert html.count("<mark>") == 1


def test_a_removed_line_that_begins_with_dashes_is_not_a_file_name() -> None:
    html = diff_html("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n--- sql comment\n kept\n")
    assert 'class="del" data-sign="-">-- sql comment' in html
    assert '<span class="file">--- a/f</span>' in html


def test_runs_of_changed_lines_are_shown_whole() -> None:
    html = diff_html("@@ -1,2 +1,2 @@\n-a\n-b\n+c\n+d\n")
    assert html.count('class="del"') == html.count('class="add"') == 2
    assert "<mark>" not in html
    assert diff_html("") == ""


def test_the_page_of_a_stage_holds_every_episode(stage: Path) -> None:
    viewing = write_viewer(stage)
    page = (stage / "trajectories.html").read_text()
    assert page.count("<details") == viewing.shown == len(viewing.episodes) == 48


def test_a_limited_page_says_how_many_it_leaves_out(stage: Path) -> None:
    viewing = write_viewer(stage, limit=5)
    page = (stage / "trajectories.html").read_text()
    assert page.count("<details") == viewing.shown == 5
    assert "of 48 episodes" in page and "5 of them" in page
    tasks = [task for task in (f"ranges-{n:03}" for n in range(12)) if task in page]
    assert len(tasks) == 5  # spread over the file, not its first five episodes


def test_one_task_can_be_read_alone(stage: Path) -> None:
    viewing = write_viewer(stage, task="ranges-003")
    assert {e["task_id"] for e in viewing.episodes} == {"ranges-003"}
    with pytest.raises(UserError, match=r"--task=nothing: not in .*ranges-000"):
        write_viewer(stage, task="nothing")


def test_rl_episodes_say_at_which_update_they_were_sampled(stage: Path) -> None:
    write_viewer(stage.parent / "rl")
    assert "update 1" in (stage.parent / "rl" / "trajectories.html").read_text()


def test_bytes_that_are_no_text_can_be_written(tmp_path: Path) -> None:
    record = episode(0, 0, False)
    record["messages"].append(tool("caf\udce9"))
    write_jsonl(tmp_path / "eval" / "episodes.jsonl", [record])
    write_viewer(tmp_path / "eval")
    assert "caf?" in (tmp_path / "eval" / "trajectories.html").read_text()


def test_an_episode_cannot_steer_the_terminal() -> None:
    record = episode(0, 0, False)
    record["messages"] += [
        assistant(call("run_command", command="\x1b]0;owned\x07")),
        tool("\x1b[2J"),
    ]
    text = episode_text(record)
    assert "\x1b" not in text and "\x07" not in text
    assert "run_command" in text


def test_the_verb_writes_the_page_and_prints_a_summary(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert view.execute([f"--workdir={stage}", "--task=ranges-001"]) == 0
    printed = capsys.readouterr().out
    assert "4 episodes of 1 tasks" in printed and "ranges-001 sample 3" in printed
    assert (stage / "trajectories.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--workdir is required"),
        (["--workdir=WORKDIR/none"], "no episodes"),
        (["--workdir=WORKDIR", "--bogus=1"], "bogus"),
        (["--workdir=WORKDIR", "--limit=0"], "limit"),
        (["--workdir=WORKDIR", "stray"], "unexpected argument 'stray'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    given = [argument.replace("WORKDIR", str(tmp_path)) for argument in arguments]
    assert view.execute(given) == 2
    errors = capsys.readouterr().err
    assert words in errors and errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert view.execute(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--workdir", "--task", "--limit"))
