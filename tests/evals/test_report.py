"""The report tells a run's numbers, runs anywhere, and lets nothing in an episode act."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from composer2_jax.evals.findings import STAGES, choose_readings, read_run
from composer2_jax.evals.report import write_report
from tests.evals.synthetic import HOSTILE, episode, evaluation, make_run, write_json, write_jsonl


class Reader(HTMLParser):
    """What a browser would act on: elements, attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["script"]:
            self.scripts.append(data)
            self.tags.append("")
        else:
            self.text += data


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = make_run(tmp_path_factory.mktemp("run"))
    write_report(workdir)
    return workdir


def test_the_numbers_are_those_of_the_stages(complete: Path) -> None:
    report = json.loads((complete / "report.json").read_text())
    sft, rl = evaluation(0.25, persistent=False, seed=1), evaluation(0.5, seed=2)
    rate = [sum(e["reward"] for e in rows) / len(rows) for rows in (sft, rl)]
    assert [report["sft"]["pass_rate"], report["rl"]["pass_rate"]] == pytest.approx(rate)
    assert report["gain"]["pass_rate"]["value"] == pytest.approx(rate[1] - rate[0])
    for agent in ("sft", "rl", "control"):
        low, high = report[agent]["interval"]
        assert low <= report[agent]["pass_rate"] <= high
    assert report["rl"]["turns"] == 11 and report["sft"]["turns"] == 5
    assert report["rl"]["tests_run"] == 2 and report["sft"]["tests"] == 0
    assert (report["perplexity_before"], report["perplexity_after"]) == (1043.0, 9.7)
    assert report["mtp_acceptance"] == 0.58
    assert report["peak_rss_bytes"] == 3 * 2**30
    # No run-wide clock in this run: the stages' own add up.
    assert report["total_seconds"] == 95 + sum(s["seconds"] for s in report["stages"].values())
    assert report["stages"]["rl"]["seconds"] == 300
    assert report["stages"]["bulk"]["tokens"] == 2_050_000
    assert report["stages"]["rl"]["tokens"] == 540_000, "its episodes are a sample of them"
    assert report["stages"]["sft"]["loss"] < report["stages"]["sft"]["first_loss"]
    assert report["seed"] == 7
    assert report["versions"]["python"].startswith("3.")
    assert report["complete"]


def test_the_run_s_own_clock_counts_where_there_is_one(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    whole = {"setup_seconds": 10.0, "wall_seconds": 990.0, "peak_rss_bytes": 4 * 2**30, "seed": 3}
    write_json(workdir / "quickstart.json", whole)
    report = write_report(workdir)
    assert (report["total_seconds"], report["peak_rss_bytes"]) == (1000.0, 4 * 2**30)
    assert report["seed"] == 3


def test_the_page_shows_the_result_and_every_stage(complete: Path) -> None:
    reader = Reader((complete / "report.html").read_text())
    report = json.loads((complete / "report.json").read_text())
    assert f"{100 * report['rl']['pass_rate']:.1f}%" in reader.text
    for name in STAGES:
        assert name in reader.text
    assert reader.tags.count("svg") >= 20
    assert reader.tags.count("article") == 3


def test_the_page_needs_no_network(complete: Path) -> None:
    page = (complete / "report.html").read_text()
    reader = Reader(page)
    assert not {"link", "img", "iframe", "object", "embed"} & set(reader.tags)
    links = [value for name, value in reader.attributes if name in ("src", "href", "action")]
    assert all((link or "").startswith("#") for link in links)
    assert "url(" not in page and "@import" not in page
    assert "default-src 'none'" in page


def test_what_an_episode_says_is_inert(complete: Path) -> None:
    page = (complete / "report.html").read_text()
    reader = Reader(page)
    assert HOSTILE in reader.text
    assert len(reader.scripts) == 1
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    # The policy runs this script only: an injected one would have another hash.
    digest = base64.b64encode(hashlib.sha256(reader.scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_every_drawing_is_well_formed(complete: Path) -> None:
    page = (complete / "report.html").read_text()
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for drawing in [*drawings, (complete / "result.svg").read_text()]:
        ElementTree.fromstring(drawing)
    charts = [json.loads(c) for c in (d.get("data-chart") for d in map(_root, drawings)) if c]
    assert {len(chart["x"]) for chart in charts} == {12, 30}
    assert all(len(s["y"]) == len(chart["x"]) for chart in charts for s in chart["series"])


def _root(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)


def test_an_empty_work_directory_is_reported_as_not_run(tmp_path: Path) -> None:
    report = write_report(tmp_path)
    assert {stage["status"] for stage in report["stages"].values()} == {"not run"}
    assert report["sft"] is report["rl"] is report["gain"] is None
    text = Reader((tmp_path / "report.html").read_text()).text
    assert text.count("not run") >= len(STAGES)
    ElementTree.fromstring((tmp_path / "result.svg").read_text())


@pytest.mark.parametrize("name", STAGES)
def test_any_one_stage_may_be_missing(complete: Path, tmp_path: Path, name: str) -> None:
    workdir = tmp_path / "run"
    shutil.copytree(complete, workdir)
    shutil.rmtree(workdir / name)
    report = write_report(workdir)
    assert report["stages"][name]["status"] == "not run"
    assert report["complete"] == (name == "eval_scripted")


def test_a_killed_stage_keeps_what_it_logged(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    (workdir / "rl" / "done.json").unlink()
    write_json(workdir / "rl" / "wall.json", {"wall_seconds": 12.5, "peak_rss_bytes": 5})
    for name in ("metrics.jsonl", "episodes.jsonl"):
        path = workdir / "rl" / name
        path.write_bytes(path.read_bytes()[:-9])
    stage = write_report(workdir)["stages"]["rl"]
    assert (stage["status"], stage["seconds"]) == ("unfinished", 12.5)
    assert stage["steps"] == 10  # of 0..11, the last line is cut
    assert stage["damaged_lines"] == 2
    assert "2 cut log lines skipped" in (workdir / "report.html").read_text()


def test_a_step_that_was_logged_again_after_a_restart_counts_once(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    rows = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}, {"step": 2, "loss": 3.0}]
    write_jsonl(workdir / "bulk" / "metrics.jsonl", rows)
    assert read_run(workdir).stages["bulk"].curve("loss") == ([1.0, 2.0], [5.0, 3.0])
    again = [episode(0, 0, False), episode(0, 0, True)]
    write_jsonl(workdir / "eval_rl" / "episodes.jsonl", again)
    assert [e["reward"] for e in read_run(workdir).episodes("eval_rl")] == [1.0]


def test_an_episode_without_a_grade_is_left_out_and_counted(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    rows = [episode(0, s, s == 0) for s in range(3)]
    rows[1]["reward"] = None
    rows[2]["ending"] = "infra"
    write_jsonl(workdir / "eval_rl" / "episodes.jsonl", rows)
    report = write_report(workdir)
    assert report["rl"]["pass_rate"] == 1.0
    assert report["stages"]["eval_rl"]["ungraded_episodes"] == 2
    assert "2 ungraded episodes left out" in (workdir / "report.html").read_text()


def test_a_loss_that_is_not_a_number_leaves_valid_json(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    (workdir / "bulk" / "done.json").write_text('{"loss": NaN, "perplexity_after": NaN}')
    write_jsonl(workdir / "bulk" / "metrics.jsonl", [{"step": 1, "loss": float("nan")}])
    write_report(workdir)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    report = json.loads((workdir / "report.json").read_text(), parse_constant=refuse)
    assert report["stages"]["bulk"]["loss"] is None


def test_evaluations_of_different_tasks_are_not_compared(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    write_jsonl(workdir / "eval_rl" / "episodes.jsonl", evaluation(0.5, tasks=6))
    report = write_report(workdir)
    assert "6 tasks are in one evaluation only" in report["gain"]["not_paired"]
    assert "cannot be paired" in (workdir / "report.html").read_text()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(0.1, 0.9, "RL takes the agent from"), (0.9, 0.1, "RL has hurt"), (0.5, 0.5, "No clear")],
)
def test_the_headline_claims_what_the_interval_allows(
    tmp_path: Path, before: float, after: float, words: str
) -> None:
    workdir = make_run(tmp_path)
    for name, rate, seed in (("eval_sft", before, 1), ("eval_rl", after, 2)):
        write_jsonl(workdir / name / "episodes.jsonl", evaluation(rate, seed=seed))
    write_report(workdir)
    heading = re.search(r"<h1>(.*?)</h1>", (workdir / "report.html").read_text())
    assert heading and heading[1].startswith(words)


def test_the_readings_are_one_solved_one_failed_and_one_that_rl_turned(complete: Path) -> None:
    run = read_run(complete)
    solved, failed, turned = choose_readings(run)
    assert [r.episode["reward"] for r in (solved, failed, turned)] == [1.0, 0.0, 1.0]
    tries = [e for e in run.episodes("eval_sft") if e["task_id"] == turned.episode["task_id"]]
    assert len(tries) == 4 and not any(e["reward"] for e in tries)
    assert turned.before in tries
    assert len({r.episode["task_id"] for r in (solved, failed, turned)}) == 3


def test_the_shortest_of_the_most_telling_episodes_is_read(tmp_path: Path) -> None:
    workdir = make_run(tmp_path)
    short = {**episode(5, 0, True), "turns": 8}
    silent = {**episode(6, 0, True, persistent=False), "turns": 2}
    rows = [episode(4, 0, True), short, silent]
    write_jsonl(workdir / "eval_rl" / "episodes.jsonl", rows)
    write_jsonl(workdir / "eval_sft" / "episodes.jsonl", rows)
    assert [r.episode["task_id"] for r in choose_readings(read_run(workdir))] == ["ranges-005"]


def test_reading_a_run_needs_no_jax() -> None:
    code = (
        "import composer2_jax.evals.report, composer2_jax.view, sys; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
