"""The files of coding tasks, and the transcripts of the scripted solver on some of them.

    sft.jsonl, rl.jsonl                train functions, no task in both
    validation.jsonl, heldout.jsonl    functions of other groups; the held-out ones are for reports
    dropped/<name>.json                how many candidates became no task, by reason
    transcripts.jsonl                  the solver's episodes on the tasks of sft.jsonl

A file appears when it is whole, and a run that was stopped goes on with the first that is not;
transcripts go on after the last whole chunk. Called by the verb `tasks`.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from composer2_jax.envs import sandbox
from composer2_jax.envs.coding_env import EnvConfig
from composer2_jax.envs.evaluator import Evaluator
from composer2_jax.envs.fleet import EnvFleet
from composer2_jax.envs.grading import grade_files
from composer2_jax.envs.solver import SolverConfig, play
from composer2_jax.envs.synthesis import Pool, SynthesisConfig, repaired
from composer2_jax.envs.task import Task, read_tasks, write_tasks
from composer2_jax.errors import UserError
from composer2_jax.files import read_json, read_json_lines, write_json, write_json_lines

CHUNK = 200  # transcripts in one part file


def make_tasks(
    workdir: Path,
    seed: int = 0,
    sft_tasks: int = 4000,
    rl_tasks: int = 1400,
    validation_tasks: int = 200,
    heldout_tasks: int = 200,
    cross_check: int = 16,
    num_workers: int = 2,
    threads_per_worker: int = 4,
    synthesis: SynthesisConfig = SynthesisConfig(),  # noqa: B008 (frozen)
    solver: SolverConfig = SolverConfig(),  # noqa: B008
    env: EnvConfig = EnvConfig(max_turns=24),  # noqa: B008
) -> dict[str, Any]:
    """Synthesises all task files and plays the solver over the SFT tasks; returns the counts.

    seed: decides everything; also which functions are held out.
    sft_tasks: tasks of train functions for the solver.
    rl_tasks: other tasks of train functions, for RL.
    validation_tasks: tasks to tune on.
    heldout_tasks: tasks for the reported numbers.
    cross_check: tasks of each file that are graded in the sandbox, as they are and repaired.
    num_workers: processes that run environments.
    threads_per_worker: episodes at a time in each of them.
    synthesis: what tasks look like.
    solver: how the scripted solver behaves.
    env: how its episodes are run.
    """
    sandbox.check()  # before minutes go into tasks that could not be graded
    pools = (
        ("sft", "train", sft_tasks),
        ("rl", "train", rl_tasks),
        ("validation", "validation", validation_tasks),
        ("heldout", "heldout", heldout_tasks),
    )
    seen: dict[str, set[str]] = {"train": set(), "validation": set(), "heldout": set()}
    made: dict[str, list[Task]] = {}
    metrics: dict[str, Any] = {}
    total = sum(count for _, _, count in pools) + sft_tasks
    with Evaluator() as evaluator, tqdm(total=total, unit="task", mininterval=0.5) as bar:
        for name, split, count in pools:
            bar.set_description(f"{name} tasks")
            pool = Pool(name, split, seed, synthesis, seen[split])
            made[name] = _file_of_tasks(pool, count, workdir, evaluator, bar)
            metrics[name] = describe(made[name]) | {
                "dropped": read_json(workdir / "dropped" / f"{name}.json"),
                "cross_checked": check_grading(made[name], cross_check, num_workers, seed),
            }
        bar.set_description("transcripts")
        transcripts = workdir / "transcripts.jsonl"
        if not transcripts.exists():
            with EnvFleet(num_workers, threads_per_worker, env) as fleet:
                episodes = num_workers * threads_per_worker
                record(made["sft"], transcripts, fleet, episodes, seed, solver, bar)
    return metrics | {"transcripts": describe_transcripts(read_json_lines(transcripts))}


def _file_of_tasks(
    pool: Pool, count: int, workdir: Path, evaluator: Evaluator, bar: "tqdm[NoReturn]"
) -> list[Task]:
    """The tasks of a pool, from its file if there is one."""
    path = workdir / f"{pool.name}.jsonl"
    if path.exists():
        tasks = read_tasks(path)
        pool.remember(tasks)
        bar.update(len(tasks))
        return tasks
    tasks = []
    for task in pool.tasks(count, evaluator):
        tasks.append(task)
        bar.update()
    if len(tasks) < count:
        raise UserError(
            f"make_tasks.{pool.name}_tasks = {count}: only {len(tasks)} different tasks were "
            f"found ({dict(pool.dropped)}); ask for fewer"
        )
    write_json(workdir / "dropped" / f"{pool.name}.json", dict(pool.dropped))
    write_tasks(path, tasks)
    return tasks


def check_grading(tasks: list[Task], count: int, threads: int, seed: int) -> int:
    """Grades some tasks for real: the fault must fail and the right line must pass.

    A task that does otherwise shows that synthesis and grading disagree, which ends the run.
    """
    chosen = random.Random(f"check/{seed}").sample(tasks, min(count, len(tasks)))
    with ThreadPoolExecutor(threads) as executor:
        rewards = list(executor.map(_rewards, chosen))
    for task, pair in zip(chosen, rewards, strict=True):
        if pair != (0.0, 1.0):
            raise RuntimeError(f"{task.id}: rewards {pair} before and after the repair, not (0, 1)")
    return len(chosen)


def _rewards(task: Task) -> tuple[float | None, float | None]:
    """The rewards of the faulty and of the repaired repository."""
    before, after = (
        grade_files(variant, {path: text.encode() for path, text in variant.files.items()})
        for variant in (task, repaired(task))
    )
    return before.reward, after.reward


def record(
    tasks: list[Task],
    path: Path,
    fleet: EnvFleet,
    episodes: int,
    seed: int,
    config: SolverConfig,
    bar: "tqdm[NoReturn]",
) -> None:
    """Plays the solver over the tasks and writes their transcripts, in the tasks' order.

    `episodes` run at a time. Chunks that an earlier run left whole are not played again.
    """
    parts = path.with_name("transcript_parts")
    files = []
    with ThreadPoolExecutor(episodes) as executor:
        for start in range(0, len(tasks), CHUNK):
            chunk = tasks[start : start + CHUNK]
            files.append(parts / f"{start:06d}.jsonl")
            if files[-1].exists():
                bar.update(len(chunk))
                continue
            lines = []
            for transcript in executor.map(lambda task: play(task, fleet, seed, config), chunk):
                lines.append(transcript.to_dict())
                bar.update()
            write_json_lines(files[-1], lines)
    write_json_lines(path, (line for file in files for line in read_json_lines(file)))
    shutil.rmtree(parts)


def describe(tasks: list[Task]) -> dict[str, Any]:
    """How many tasks there are, of how many functions, and of which kinds of fault."""
    return {
        "tasks": len(tasks),
        "functions": len({task.function for task in tasks}),
        "groups": len({task.group for task in tasks}),
        "fault_kinds": dict(sorted(Counter(task.fault_kind for task in tasks).items())),
    }


def describe_transcripts(lines: list[Mapping[str, Any]]) -> dict[str, Any]:
    """How the solver did: pass rate, turns, tests; and where its own verdict was wrong."""
    calls = [[c["name"] for m in line["messages"] for c in m["calls"]] for line in lines]
    graded = [line for line in lines if line["graded"]]
    return {
        "episodes": len(lines),
        "pass_rate": _mean(line["reward"] for line in lines),
        "mean_turns": _mean(len(names) for names in calls),
        "trained_turn_share": _mean(flag for line in lines for flag in line["trained"]),
        "edits": _mean(names.count("edit_file") for names in calls),
        "test_share": _mean("run_command" in names for names in calls),
        "undo_share": _mean("undo_edit" in names for names in calls),
        "lost_and_replayed": sum(line["lost"] for line in lines),
        "graded": len(graded),
        "graded_unlike_repaired": sum(line["reward"] != line["repaired"] for line in graded),
    }


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(1, len(listed))
