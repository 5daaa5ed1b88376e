"""Training by next-token losses: losses, the pure step, and the loop (report, phase 1).

May import `optim`, `checkpoint`, `weights`, `data`, `model` and `core`. `rl` reuses the state and
the step with a loss of its own.
"""
