#!/usr/bin/env bash
# From a fresh clone to a trained coding agent: sets up, runs the whole recipe, writes a report.
#
#   bash launch/quickstart.sh [--workdir=DIR] [--seed=N] [--help]
#
# Needs Debian or Ubuntu, Python 3.11 or newer, 2 cores, 8 GiB of memory and 6 GB of disk (5 of
# them for .venv); no accelerator. Stop it whenever you like: the same command goes on from there.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up data
rm -f "$LOG"
export COMPOSER2_JAX_SETUP_SECONDS=$SECONDS
# -P: a file of the current directory must not stand in for a module.
exec "$PYTHON" -P -m composer2_jax.quickstart "$@"
