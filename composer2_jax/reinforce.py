"""Phase 2: asynchronous policy-gradient RL in sandboxed coding environments.

    python -m composer2_jax.reinforce --gin_file=gin_configs/runs/quickstart/rl.gin \
        --workdir=runs/quickstart/rl

One process samples and learns; environments run in worker processes. Writes checkpoints,
metrics.jsonl and groups.sqlite (finished groups, re-used after a kill). The quickstart's run takes
about ten minutes on two cores.
"""

from composer2_jax import cli
from composer2_jax.rl.learner import reinforce


def main() -> None:
    cli.run(reinforce)


if __name__ == "__main__":
    main()
