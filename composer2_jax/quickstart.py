"""The whole recipe at laptop size: tasks, data, pretraining, SFT, RL, evaluation, report.

    python -m composer2_jax.quickstart [--workdir=DIR] [--seed=N] [--control] [--gin_dir=FOLDER]

Calls the same verbs as a big run, one after another, each in its own process and in its own
directory under DIR. Finished stages are skipped and a stopped one goes on from its last
checkpoint, so the same command continues after Ctrl-C or `kill -9`; a complete run only prints
its result. `launch/quickstart.sh` sets the machine up and ends here.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer2_jax import cli, files, rundir, stages
from composer2_jax.envs import sandbox
from composer2_jax.errors import UserError
from composer2_jax.evals.report import write_report
from composer2_jax.evals.terminal import result_text

# Runs lie in the clone; an installed package has none, and uses the current directory.
RUNS = (cli.CLONE if cli.GIN_ROOT == cli.CLONE else Path.cwd()) / "runs"
SETUP_VARIABLE = "COMPOSER2_JAX_SETUP_SECONDS"


@dataclass(frozen=True)
class Plan:
    """What `stages.gin` says. A stage is (name, verb, expected seconds)."""

    run: Sequence[tuple[str, str, float]]
    control: Sequence[tuple[str, str, float]]
    disk_gigabytes: float

    def stages(self, gin_dir: Path, workdir: Path, with_control: bool) -> list[stages.Stage]:
        """The stages in order; UserError where one has no gin file."""
        found = []
        for name, verb, seconds in [*self.run, *(self.control if with_control else ())]:
            gin_file = gin_dir / f"{name}.gin"
            if not gin_file.is_file():
                raise UserError(f"stage {name} has no gin file {gin_file}")
            found.append(stages.Stage(name, verb, seconds, gin_file, workdir / name))
        return found


def plan(
    run: Sequence[tuple[str, str, float]],
    control: Sequence[tuple[str, str, float]] = (),
    disk_gigabytes: float = 1.0,
) -> dict[str, Any]:
    """What gin binds.

    Args:
        run: (name, verb, expected seconds) of each stage, in order
        control: stages that only --control asks for
        disk_gigabytes: free space without which a run does not start
    """
    return {"plan": Plan(run, control, disk_gigabytes)}


def quickstart(options: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Runs what is left of the recipe in `options.workdir`; returns the exit code."""
    workdir: Path = options.workdir.resolve()
    bound, _ = cli.configure(plan, [f"{options.gin_dir}/stages.gin"], overrides, "quickstart")
    asked: Plan = plan(**bound)["plan"]
    chosen = asked.stages(options.gin_dir, workdir, options.control)
    with rundir.locked(workdir):
        state = _state(workdir, options, chosen)
        if all(stage.done() for stage in chosen) and _report_is_newer(workdir, chosen):
            print(result_text(workdir, files.read_json(workdir / "report.json")))
            return 0
        sandbox.check()  # not minutes later, when the first stage needs it
        _check_disk(workdir, asked.disk_gigabytes * 1e9)
        files.write_json(workdir / "quickstart.json", state)
        with rundir.Meter(workdir / "wall.json") as meter:
            code = _run_all(chosen, state)
        if code == 0:
            files.write_json(workdir / "quickstart.json", {**state, **meter.summary()})
            print(result_text(workdir, write_report(workdir)))
        return code


def _run_all(chosen: Sequence[stages.Stage], state: dict[str, Any]) -> int:
    """Runs what is not done, and notes in `state` and on disk the config that each stage had."""
    for number, stage in enumerate(chosen):
        if stage.done():
            continue
        left = stages.estimate(chosen, number)
        _say(
            f"stage {number + 1}/{len(chosen)} {stage.name} ({stage.verb}): about "
            f"{stages.in_words(left.stage)}; whole run: about {stages.in_words(left.run)} left"
        )
        state["configs"][stage.name] = stages.config_digests(chosen, cli.GIN_ROOT)[stage.name]
        files.write_json(stage.workdir.parent / "quickstart.json", state)
        result = stages.run_stage(stage, state["seed"], cli.PARENT_VARIABLE)
        if result.code == 130:
            raise KeyboardInterrupt
        if result.code or not stage.done():
            _say(
                f"stage {stage.name} ({stage.verb}) failed with exit code {result.code}: "
                f"{result.last_line or 'it said nothing'}"
            )
            return result.code or 1
    return 0


def _state(
    workdir: Path, options: argparse.Namespace, chosen: Sequence[stages.Stage]
) -> dict[str, Any]:
    """What identifies a run, and what its set-up cost; UserError where DIR holds another run."""
    old = files.read_json(workdir / "quickstart.json")
    new = {"seed": options.seed, "gin_dir": os.path.relpath(options.gin_dir, cli.GIN_ROOT)}
    for name, value in new.items():
        if name in old and old[name] != value:
            raise UserError(
                f"--workdir={workdir} was made with --{name}={old[name]}, this run has "
                f"--{name}={value}: use another --workdir, or delete this one"
            )
    configs: dict[str, str] = old.get("configs", {})
    now = stages.config_digests(chosen, cli.GIN_ROOT)
    for stage in chosen:
        if not stage.done() or configs.get(stage.name) == now[stage.name]:
            continue
        if stage.name not in configs:
            _say(f"{stage.workdir} was made outside of this quickstart and is taken as it is")
            configs[stage.name] = now[stage.name]
            continue
        raise UserError(
            f"{stage.workdir} was made with another config ({stage.gin_file.name} or that of a "
            f"stage before it) than the one here: use another --workdir, or delete the "
            f"directories of this stage and those after it"
        )
    setup = float(os.environ.get(SETUP_VARIABLE, 0.0))
    return {
        **new,
        "configs": configs,
        "setup_seconds": float(old.get("setup_seconds", 0.0)) + setup,
    }


def _report_is_newer(workdir: Path, chosen: Sequence[stages.Stage]) -> bool:
    report = workdir / "report.json"
    ends = [(stage.workdir / "done.json").stat().st_mtime for stage in chosen]
    return report.exists() and report.stat().st_mtime >= max(ends)


def _check_disk(workdir: Path, needed: float) -> None:
    free = shutil.disk_usage(workdir).free
    if free < needed:
        raise UserError(
            f"--workdir={workdir} has {free / 1e9:.2f} GB of free disk, a run needs "
            f"{needed / 1e9:.1f} GB: free some, or name a directory on another disk"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    overrides = [a.removeprefix("--gin.") for a in arguments if a.startswith("--gin.")]
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--workdir", type=Path, default=RUNS / "quickstart")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", action="store_true", help="adds the scripted control")
    parser.add_argument(
        "--gin_dir",
        type=Path,
        default=cli.GIN_ROOT / "gin_configs" / "runs" / "quickstart",
        help="folder with stages.gin and one gin file a stage",
    )
    options = parser.parse_args([a for a in arguments if not a.startswith("--gin.")])
    options.gin_dir = options.gin_dir.resolve()
    return cli.exit_code("quickstart", lambda: quickstart(options, overrides))


if __name__ == "__main__":
    # gin must see the same `plan` as this process, and that of `__main__` is another one.
    from composer2_jax import quickstart as module

    sys.exit(module.main())
