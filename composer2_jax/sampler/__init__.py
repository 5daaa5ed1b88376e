"""The sampler: draws tokens from a weight version, shares `model` and `core` with the trainer.

May import `weights`, `model` and `core`; never `train`.
"""
