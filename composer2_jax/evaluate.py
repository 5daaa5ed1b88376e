"""Evaluates a checkpoint on coding tasks, each several times, in the harness that RL trains in.

    python -m composer2_jax.evaluate --gin_file=gin_configs/runs/quickstart/eval_rl.gin \
        --workdir=runs/quickstart/eval_rl

Writes episodes.jsonl (every conversation, to read with `python -m composer2_jax.view`) and
done.json: mean pass rate with a 95 % interval, best-of-4, tokens, turns, seconds. 200 tasks x 4
take about a minute on two cores.
"""

from composer2_jax import cli
from composer2_jax.evals.suites import evaluate


def main() -> None:
    cli.run(evaluate)


if __name__ == "__main__":
    main()
