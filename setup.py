"""Packaging. The core needs neither TensorFlow nor torch; each heavy dependency is an extra."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "composer2_jax/__init__.py").read_text())[1]

CORE = [
    "absl-py>=2.1",
    "array-record>=0.8",
    "flax>=0.12,<0.13",
    "gin-config>=0.5",
    "grain>=0.2.15",
    "gymnasium>=1.0",
    # The one pin that matters: numerics and shardings are tested against this range only.
    "jax>=0.10,<0.11",
    "jaxtyping>=0.3",
    "numpy>=2.0",
    "optax>=0.2.5",
    "orbax-checkpoint>=0.11.20",
    "sentencepiece>=0.2",
    # Reads and writes array_record data sets without importing TensorFlow.
    "tensorflow-datasets>=4.9.8",
    "tqdm>=4.66",
]

EXTRAS = {
    # Brings TensorFlow. Needed to prepare data, never to train: no jax process imports it.
    "data": ["seqio>=0.0.20"],
    "tpu": ["jax[tpu]>=0.10,<0.11"],
    "test": ["hypothesis>=6", "mypy>=1.15", "pytest>=8", "pytest-xdist>=3.6", "ruff>=0.9"],
}
# Not "tpu": its runtime library is of no use on a machine without one.
EXTRAS["all"] = EXTRAS["data"] + EXTRAS["test"]


def gin_files() -> list[tuple[str, list[str]]]:
    """gin_configs/ under the install prefix, where the command line looks beside the clone."""
    folders: dict[str, list[str]] = {}
    for path in sorted((ROOT / "gin_configs").rglob("*.gin")):
        relative = path.relative_to(ROOT)
        folders.setdefault(f"share/composer2_jax/{relative.parent}", []).append(str(relative))
    return list(folders.items())


setup(
    name="composer2_jax",
    version=VERSION,
    description="Train a coding agent in JAX the way the Composer 2 report describes it",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["composer2_jax*"]),
    package_data={"composer2_jax.evals": ["static/*"]},
    data_files=gin_files(),
    install_requires=CORE,
    extras_require=EXTRAS,
)
