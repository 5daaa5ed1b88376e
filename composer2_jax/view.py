"""Makes the episodes of a run readable: one self-contained HTML page and a summary.

    python -m composer2_jax.view --workdir=runs/quickstart/eval_rl
    python -m composer2_jax.view --workdir=runs/quickstart/eval_rl --task=ID

Works on the directory of any stage that ran episodes (`evaluate`, `reinforce`) and writes
`trajectories.html` there: every turn's tool call, its result, and the final diff. With --task the
episodes of that task are also printed. Takes seconds, needs no accelerator and no gin file.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from composer2_jax.errors import UserError
from composer2_jax.evals.viewer import episode_text, summary_text, write_viewer


def new_flags() -> flags.FlagValues:
    """This verb's flags, apart from absl's global set, where --workdir is the gin verbs'."""
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "directory with episodes.jsonl", values)
    flags.DEFINE_string("task", "", "only this task; also prints its episodes", values)
    flags.DEFINE_integer("limit", 200, "at most so many episodes on the page", 1, None, values)
    return values


def usage() -> str:
    """The text of --help."""
    values = new_flags()
    lines = [
        f"  --{flag.name + '=' + flag.name.upper():<18} {flag.help} (default: {flag.default!r})"
        for flag in (values["workdir"], values["task"], values["limit"])
    ]
    return "\n".join([(__doc__ or "").strip(), "", "flags:", *lines])


def execute(arguments: Sequence[str]) -> int:
    """Runs the verb on a command line without the program's name; returns the exit code."""
    if {"-h", "--help", "--helpfull"} & set(arguments):
        print(usage())
        return 0
    values = new_flags()
    try:
        rest = values(["view", *arguments])[1:]
        if rest or not values.workdir:
            raise UserError(f"unexpected argument {rest[0]!r}" if rest else "--workdir is required")
        viewing = write_viewer(Path(values.workdir), task=values.task, limit=values.limit)
    except (UserError, flags.Error) as error:
        print(f"view: error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    if values.task:
        print("\n\n".join(map(episode_text, viewing.episodes)), end="\n\n")
    print(summary_text(viewing))
    return 0


def main() -> None:
    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
