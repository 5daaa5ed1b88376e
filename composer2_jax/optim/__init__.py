"""Optimizers and learning-rate schedules. May import `core`; `train` and `rl` import it."""
