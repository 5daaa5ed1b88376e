"""Makes the token files that training reads, from the sources of the running interpreter.

    python -m composer2_jax.prepare_data --gin_file=gin_configs/runs/quickstart/data.gin \\
        --workdir=runs/quickstart/data

Builds a TFDS data set of the standard library, trains the tokenizer, makes quote, repair and plain
documents, runs the SeqIO tasks over them and over the agent's transcripts, and stores the ids.
Cost: under a minute on two cores, 1 GB of memory, about 70 MB of disk. Stopped and run again, it
goes on with the first stage that is not whole.
"""

from composer2_jax import cli
from composer2_jax.data.prepare import prepare_data


def main() -> None:
    cli.run(prepare_data)


if __name__ == "__main__":
    main()
