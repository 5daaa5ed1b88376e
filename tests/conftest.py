"""Settings of the whole test run, made before anything imports jax."""

import os
from pathlib import Path

# The tests compile many small programs and run each of them once or twice: optimising machine code
# costs several times what it saves, and a program is compiled once for all processes.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
