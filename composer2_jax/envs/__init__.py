"""Coding environments: tasks, workspaces, the sandbox, tools, grading and the worker fleet.

Worker processes import this package and must start fast and never load an accelerator: it imports
the standard library and gymnasium only. Anyone may import it.
"""

import gymnasium

from composer2_jax.envs.coding_env import CodingEnv, EnvConfig
from composer2_jax.envs.sandbox import InfraError
from composer2_jax.envs.task import Task, read_tasks, write_tasks

ENV_ID = "composer2/Coding-v0"

# Turns are counted by the environment itself, which grades the episode that it cuts.
gymnasium.register(id=ENV_ID, entry_point="composer2_jax.envs.coding_env:CodingEnv")

__all__ = ["ENV_ID", "CodingEnv", "EnvConfig", "InfraError", "Task", "read_tasks", "write_tasks"]
