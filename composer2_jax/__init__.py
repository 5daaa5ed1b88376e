"""composer2_jax: training a coding agent in JAX, the way the Composer 2 report describes it.

Importing the package imports nothing else: environment workers must never load an accelerator.
"""

__version__ = "0.1.0"
