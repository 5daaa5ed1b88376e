"""The arrows of the design, read from the imports. A new arrow is a decision: change the table."""

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "composer2_jax"

# Anyone may import these; they import the standard library (envs: gymnasium too) and each other.
LEAVES = {"errors", "files", "agent", "envs"}
VERBS = {
    *("pretrain", "reinforce", "evaluate", "serve", "view"),
    *("compile_ahead", "convert", "tasks", "prepare_data", "quickstart"),
}
MODEL_SIDE = {"model", "core"}
LIBRARY = {"optim", "weights", "checkpoint", "data", "sampler", "train", *MODEL_SIDE}
# Package -> the packages that it may import besides itself.
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "rundir": {"errors", "files"},
    "stages": {"files"},
    "cli": {"errors", "files", "rundir"},
    "agent": {"errors"},
    "envs": {"errors", "files", "agent"},
    "core": {"errors"},
    "data": {"core", *LEAVES},
    "model": {"core", "errors"},
    "optim": {*MODEL_SIDE, "errors"},
    "weights": {*MODEL_SIDE, "errors"},
    "checkpoint": {*MODEL_SIDE, "errors"},
    "train": {*MODEL_SIDE, "optim", "weights", "checkpoint", "data", *LEAVES},
    # Trainer and sampler share model, core and the messages in weights, nothing else.
    "sampler": {*MODEL_SIDE, "weights", *LEAVES},
    "rl": {*LIBRARY, *LEAVES},
    "evals": {*LIBRARY, *LEAVES},
    **{verb: {*LIBRARY, "cli", "rl", "evals", *LEAVES} for verb in VERBS},
    "quickstart": {"cli", "envs", "errors", "evals", "files", "rundir", "stages"},
}
# Only these may import a distribution that is dear or that must stay in one place.
OUTSIDE = {
    "gin": {"cli.py"},
    "seqio": {"data/seqio_tasks.py"},
    "tensorflow": {"data/seqio_tasks.py"},
    "torch": set(),
}
# What a package without jax may import from outside; the others are free but for OUTSIDE.
OUTSIDE_OF = {
    "errors": set(),
    "files": set(),
    "rundir": set(),
    "stages": set(),
    "quickstart": set(),
    "agent": set(),
    "envs": {"gymnasium", "numpy"},
    "cli": {"gin", "absl"},
}
# The edge of a thread or a process: the one handler there passes the error on to whoever waits.
HAND_ON = {"envs/worker.py", "rl/actor.py"}
COLLECTIVES = {
    *("psum", "pmean", "pmax", "pmin", "all_gather", "all_to_all", "ppermute", "pshuffle"),
    *("psum_scatter", "axis_index", "axis_size", "ragged_all_to_all"),
}


def sources(folder: Path = PACKAGE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Dotted names of what is imported anywhere in `tree`, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, so that the arrows can be read"
            assert node.module is not None
            # `from composer2_jax import cli` names a module only with what stands behind it.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_imports(tree: ast.AST) -> set[str]:
    """The packages of composer2_jax that `tree` imports."""
    parts = [name.split(".") for name in imported_modules(tree)]
    return {names[1] for names in parts if names[0] == "composer2_jax" and len(names) > 1}


def outer_imports(tree: ast.AST) -> set[str]:
    """The distributions outside the standard library that `tree` imports."""
    first = {name.partition(".")[0] for name in imported_modules(tree)}
    return first - set(sys.stdlib_module_names) - {"composer2_jax"}


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def forbidden_arrows(package: str, tree: ast.AST) -> set[str]:
    return inner_imports(tree) - MAY_IMPORT[package] - {package, "__version__"}


def swallowing_handlers(tree: ast.AST) -> list[int]:
    """Lines of handlers that catch everything and do not raise it again."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = [] if node.type is None else ast.walk(node.type)
        names = {name.id for name in caught if isinstance(name, ast.Name)}
        catches_all = node.type is None or bool(names & {"Exception", "BaseException"})
        raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
        if catches_all and not raises:
            found.append(node.lineno)
    return found


def mesh_axis_mentions(tree: ast.AST) -> list[int]:
    """Lines that build a mesh or a partition, or that name an axis to a collective."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax"):
            if {"Mesh", "PartitionSpec", "make_mesh"} & {alias.name for alias in node.names}:
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in {"PartitionSpec", "Mesh"}:
            found.append(node.lineno)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            if name in COLLECTIVES and any(
                isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values
            ):
                found.append(node.lineno)
    return found


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_imports_follow_the_arrows():
    wrong = {}
    for path in sources():
        package = package_of(path)
        if package == "__init__":
            assert not list(imported_modules(parse(path))), "importing the package imports nothing"
            continue
        assert package in MAY_IMPORT, f"{package} has no row in the table of arrows"
        if forbidden := forbidden_arrows(package, parse(path)):
            wrong[name_of(path)] = forbidden
    assert not wrong


def test_the_table_of_arrows_has_no_cycle():
    order = graphlib.TopologicalSorter(MAY_IMPORT).static_order()
    assert set(order) == set(MAY_IMPORT)


def test_dear_imports_stay_where_they_belong():
    for path in sources():
        package, modules = package_of(path), set(imported_modules(parse(path)))
        outer = outer_imports(parse(path))
        for distribution in outer & OUTSIDE.keys():
            assert name_of(path) in OUTSIDE[distribution], f"{distribution} in {path}"
        if package in OUTSIDE_OF:
            assert outer <= OUTSIDE_OF[package], path
        if "absl.flags" in modules:
            assert package in VERBS | {"cli"}, f"{path}: no flag is read below the verbs"


def test_no_handler_swallows_everything():
    found = {name_of(p): lines for p in sources() if (lines := swallowing_handlers(parse(p)))}
    assert found.keys() <= HAND_ON, found
    assert all(len(lines) == 1 for lines in found.values()), found


def test_only_one_file_names_mesh_axes():
    found = {name_of(p): lines for p in sources() if (lines := mesh_axis_mentions(parse(p)))}
    assert set(found) == {"core/sharding.py"}, found


def test_a_verb_is_a_few_lines_and_says_what_it_is():
    for path in PACKAGE.glob("*.py"):
        if path.stem in VERBS - {"quickstart"}:
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 80, path
            assert ast.get_docstring(parse(path)), f"{path}: its docstring is what --help shows"


def test_tensorflow_is_imported_only_when_data_is_prepared():
    path = PACKAGE / "data" / "seqio_tasks.py"
    loaded_with_the_module = [
        node for node in parse(path).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    for node in loaded_with_the_module:
        assert not outer_imports(node) & {"tensorflow", "seqio"}


@pytest.mark.parametrize("package", sorted(LEAVES))
def test_an_environment_worker_loads_no_accelerator(package):
    code = (
        f"import sys, composer2_jax.{package}\n"
        "print(*sorted({'jax', 'jaxlib', 'flax', 'tensorflow', 'torch'} & sys.modules.keys()))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == ""


# The readers above, held to examples: a rule that cannot fail is no rule.


def test_a_forbidden_arrow_is_seen_in_every_spelling():
    for text in (
        "import composer2_jax.rl.objective",
        "from composer2_jax import rl",
        "from composer2_jax.rl import objective",
        "def later():\n    from composer2_jax.rl.objective import loss",
    ):
        assert forbidden_arrows("model", ast.parse(text)) == {"rl"}
    assert not forbidden_arrows("model", ast.parse("from composer2_jax.core import trees"))


def test_a_swallowing_handler_is_told_from_one_that_raises():
    swallow = "try:\n    f()\nexcept {}:\n    pass\n"
    for caught in ("Exception", "(ValueError, BaseException)", "Exception as error"):
        assert swallowing_handlers(ast.parse(swallow.format(caught))) == [3]
    assert swallowing_handlers(ast.parse("try:\n    f()\nexcept:\n    pass\n")) == [3]
    assert not swallowing_handlers(ast.parse(swallow.format("ValueError")))
    assert not swallowing_handlers(
        ast.parse("try:\n    f()\nexcept Exception:\n    clean()\n    raise\n")
    )


def test_a_mesh_axis_is_seen_in_every_spelling():
    for text in (
        "from jax.sharding import PartitionSpec as P",
        "spec = jax.sharding.PartitionSpec('a')",
        "x = jax.lax.psum(x, 'anything')",
        "x = lax.all_to_all(x, axis_name='anything', split_axis=0)",
    ):
        assert mesh_axis_mentions(ast.parse(text)), text
    assert not mesh_axis_mentions(ast.parse("x = jax.lax.psum(x, axis)"))
