"""Phase 1: next-token training, in every phase of the report (bulk, MTP, long context, SFT).

    python -m composer2_jax.pretrain --gin_file=gin_configs/runs/quickstart/bulk.gin \\
        --workdir=runs/quickstart/bulk

Reads the tokens that `prepare_data` stored, starts from fresh weights or from other runs'
checkpoints, and writes checkpoints, metrics.jsonl and done.json. Stopped and run again, it goes on
from its last checkpoint with the batches of an uninterrupted run, to bit-identical weights.
"""

from composer2_jax import cli
from composer2_jax.train.loop import pretrain


def main() -> None:
    cli.run(pretrain)


if __name__ == "__main__":
    main()
