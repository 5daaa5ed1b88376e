"""Settings of the whole test run, made before anything imports jax."""

import os

# The tests compile many small programs and run each of them once or twice: optimising machine code
# costs several times what it saves.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
