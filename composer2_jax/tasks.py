"""Makes coding tasks with hidden tests, and plays the scripted solver on some of them.

    python -m composer2_jax.tasks --gin_file=gin_configs/runs/quickstart/tasks.gin \\
        --workdir=runs/quickstart/tasks

A task is a small repository in which one function has one fault on one line. Tasks are split by
groups of alike functions into train (sft.jsonl and rl.jsonl), validation.jsonl and heldout.jsonl;
the solver plays the SFT tasks in the real environment and leaves transcripts.jsonl.
Cost: about a minute on two cores. Stopped and run again, it goes on where it was.
"""

from composer2_jax import cli
from composer2_jax.data.coding_tasks import make_tasks


def main() -> None:
    cli.run(make_tasks)


if __name__ == "__main__":
    main()
