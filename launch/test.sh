#!/usr/bin/env bash
# Sets up what is missing, then runs the checks and the tests; arguments go to pytest.
#
#   bash launch/test.sh                        # everything, as CI does
#   bash launch/test.sh tests/test_cli.py      # the checks and one file
#   bash launch/test.sh -m long -n 0           # what takes minutes and CI leaves out
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up data,test
cd "$ROOT"
"$PYTHON" -m pip check
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy composer2_jax
"$PYTHON" -m pytest -n 2 --dist worksteal "$@"
