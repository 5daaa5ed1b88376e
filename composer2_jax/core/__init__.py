"""Foundations shared by every jax part: numerics, trees and the one file that names mesh axes."""
