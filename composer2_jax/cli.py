"""The command line that every verb shares: gin and flags in, a finished work directory out.

    python -m composer2_jax.VERB --gin_file=FILE --gin.NAME=VALUE --workdir=DIR

A verb is a file of a few lines that hands one library function to `run`; the function's arguments
are what gin binds. Bad input ends with one line on stderr and exit code 2, before anything is
written. This is the only file that imports gin; only verbs import it.
"""

import ctypes
import dataclasses
import difflib
import inspect
import os
import re
import shutil
import signal
import sqlite3
import sys
import tokenize
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gin
from absl import flags

from composer2_jax import rundir
from composer2_jax.errors import UserError
from composer2_jax.files import write_atomic, write_json

Verb = Callable[..., dict[str, Any] | None]

# Of glibc's malloc.h. One arena, since the heaps of others are too small for XLA's buffers.
_MALLOC_OPTIONS = {
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: give nothing back before so many bytes are free
    -2: 64 << 20,  # M_TOP_PAD: grow by this at least
    -4: 0,  # M_MMAP_MAX: no mapping of its own for a large buffer
    -8: 1,  # M_ARENA_MAX
}

_GIN_FILE = flags.DEFINE_multi_string("gin_file", [], "gin files, later ones win")
_WORKDIR = flags.DEFINE_string("workdir", None, "directory of this run")

# What a run has to show for its time, in its work directory.
_WORK = ("checkpoints/*", "episodes.jsonl", "metrics.jsonl")

# Set by a parent that must not leave this process behind when it is killed.
PARENT_VARIABLE = "COMPOSER2_JAX_PARENT"

# A clone keeps gin_configs/ beside the package; an installed package has it under its prefix.
CLONE = Path(__file__).parents[1]
_GIN_ROOTS = (CLONE, Path(sys.prefix) / "share" / "composer2_jax")
GIN_ROOT = next((root for root in _GIN_ROOTS if (root / "gin_configs").is_dir()), CLONE)


def run(fn: Verb, argv: Sequence[str] | None = None) -> typing.NoReturn:
    """Runs `fn(workdir=..., **what gin binds)` as a command line and exits with its code.

    `argv` is without the program's name; the default is the command line of this process.
    """
    sys.exit(execute(fn, argv, sys._getframe(1).f_globals))


def execute(fn: Verb, argv: Sequence[str] | None, caller: dict[str, Any]) -> int:
    """`run`, but returns the exit code. `caller` holds the globals of the verb's module."""
    verb = Path(caller["__file__"]).stem
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "--helpfull"} & set(arguments):
        print(usage(fn, verb, caller.get("__doc__") or ""))
        return 0

    def body() -> int:
        files, overrides, workdir = parse_flags(arguments)
        values, config = configure(fn, files, overrides, verb)
        prepare_process(workdir)
        return _run_in(workdir, fn, values, config)

    return exit_code(verb, body)


def exit_code(verb: str, body: Callable[[], int]) -> int:
    """Runs `body`; what a user can mend becomes one line on stderr and code 2, Ctrl-C 130."""
    try:
        return body()
    except UserError as error:
        print(f"{verb}: error: {_first_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{verb}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except (OSError, ValueError, RuntimeError, sqlite3.Error) as error:
        problem = rundir.disk_problem(error)
        if problem is None:
            raise
        print(f"{verb}: error: {problem}; the same command goes on from here", file=sys.stderr)
        return 2


def _run_in(workdir: Path, fn: Verb, values: dict[str, Any], config: str) -> int:
    with rundir.locked(workdir):
        rundir.check_config(workdir, config)
        if (workdir / "done.json").exists():
            print(f"{workdir}: already done", file=sys.stderr)
            return 0
        fresh, before = not (workdir / "config.gin").exists(), set(workdir.iterdir())
        write_atomic(workdir / "config.gin", config)
        try:
            with rundir.Meter(workdir / "wall.json", rundir.process_age()) as meter:
                metrics = fn(workdir=workdir, **values) or {}
        except UserError:
            if fresh:
                _undo_start(workdir, before)
            raise
        write_json(workdir / "done.json", {**metrics, **meter.summary()})
        return 0


def _undo_start(workdir: Path, before: Set[Path]) -> None:
    """Leaves no trace of a first start that found its input bad, so that the mended command may
    run; unless it has trained or played already, which is not thrown away."""
    if any(path.is_dir() or path.stat().st_size for name in _WORK for path in workdir.glob(name)):
        return
    for path in set(workdir.iterdir()) - before:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def prepare_process(workdir: Path) -> None:
    """Points jax at a compile cache shared by sibling runs, ties this process to its parent, and
    sets malloc up for XLA."""
    cache = os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", str(workdir.parent.resolve() / "compile_cache")
    )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if parent := os.environ.pop(PARENT_VARIABLE, None):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != int(parent):  # it died before the call above
            raise KeyboardInterrupt
    _keep_freed_memory()
    # jax reads the variable when it is imported, which a verb's imports may have done already.
    if jax := sys.modules.get("jax"):
        jax.config.update("jax_compilation_cache_dir", cache)


def _keep_freed_memory() -> None:
    """Tells glibc's malloc to keep what is freed for the next request.

    XLA on CPUs asks for the same buffers at every step; by default each is mapped and unmapped
    anew, and the kernel spends up to a third of the time zeroing pages.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, value in _MALLOC_OPTIONS.items():
            libc.mallopt(option, value)


# Flags and gin


def parse_flags(arguments: Sequence[str]) -> tuple[list[str], list[str], Path]:
    """Splits a command line into gin files, gin bindings ("NAME=VALUE") and the work directory."""
    overrides = [a.removeprefix("--gin.") for a in arguments if a.startswith("--gin.")]
    for text in overrides:
        if "=" not in text:
            raise UserError(f"--gin.{text} has no value: write --gin.{text}=VALUE")
    for flag in (_GIN_FILE.name, _WORKDIR.name):
        flags.FLAGS[flag].unparse()  # a second run in this process must not add to the first
    try:
        # The first element stands for the program's name.
        rest = flags.FLAGS(["", *(a for a in arguments if not a.startswith("--gin."))])
    except flags.Error as error:
        raise UserError(f"{_first_line(error)} (--help lists the flags)") from error
    if rest[1:]:
        raise UserError(f"unexpected argument {rest[1]!r} (--help lists the flags)")
    if not _WORKDIR.value:
        raise UserError("--workdir is required: name the directory of this run")
    return list(_GIN_FILE.value or []), overrides, Path(_WORKDIR.value)


def configure(
    fn: Verb, files: Sequence[str], overrides: Sequence[str], verb: str
) -> tuple[dict[str, Any], str]:
    """Parses gin; returns the arguments that it binds for `fn` and the effective config as text."""
    gin.clear_config()
    # gin's other reader, for files inside Python packages, logs each miss as an error.
    gin.config._FILE_READERS[:] = [(open, os.path.isfile)]
    gin.external_configurable(fn, module=fn.__module__)
    gin.add_config_file_search_path(str(GIN_ROOT))
    for file in files:
        with _gin_errors(fn, verb, file):
            gin.parse_config_file(file)
    names = {n.partition("=")[0].strip() for n in gin.config_str(100).splitlines() if "=" in n}
    for text in overrides:
        _override(text, fn, verb, names)
    bound: dict[tuple[str, str], dict[str, Any]] = {}
    hook = gin.config.register_finalize_hook(lambda config: bound.update(config))
    with _gin_errors(fn, verb, files[-1] if files else "command line"):
        gin.finalize()
        gin.config._FINALIZE_HOOKS.remove(hook)  # gin offers no way to take a hook back
        _check_bindings(fn, bound)
        return gin.get_bindings(fn), gin.config_str(100)


def _override(text: str, fn: Verb, verb: str, names: set[str]) -> None:
    """Applies one `--gin.NAME=VALUE`.

    A gin file names functions by its imports. The command line may use those names, the bare name
    of anything a gin file mentions, a macro, or `VERB.argument` for the verb's own function.
    """
    name, _, value = text.partition("=")
    owner, _, argument = name.strip().rpartition(".")
    if not owner and argument not in names:
        raise UserError(f"--gin.{text}: no macro {argument!r}{_nearest(argument, names)}")
    if owner == verb:
        owner = fn.__module__ + "." + fn.__name__
    header = gin.config_str(100).partition("\n\n")[0].splitlines()
    imports = [line for line in header if line.startswith(("from ", "import "))]
    symbols = {line.split()[-1].partition(".")[0] for line in imports}
    dynamic = owner.rpartition("/")[2].partition(".")[0] in symbols
    key = f"{owner}.{argument}" if owner else argument
    with _gin_errors(fn, verb, f"--gin.{text}"):
        gin.parse_config([*(imports if dynamic else []), f"{key} = {value}"])


@contextmanager
def _gin_errors(fn: Verb, verb: str, source: str) -> Iterator[None]:
    """Turns what gin raises about `source` into one line that names the place and a remedy."""
    try:
        yield
    except UserError as error:
        raise UserError(_first_line(error)) from error
    except (OSError, ImportError) as error:
        missing = re.match(r"Unable to open file: (.+?)\. Searched", str(error))
        text = f"there is no gin file {missing[1]!r}" if missing else _first_line(error)
        raise UserError(text if source in text else f"{source}: {text}") from error
    except (SyntaxError, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None)
        place = source if source.startswith("--gin.") or not line else f"{source}, line {line}"
        raise UserError(
            f"{place}: cannot read this; a value is a Python literal, %MACRO or @name(), "
            f"text needs quotes"
        ) from error
    except (NameError, AttributeError, LookupError, ValueError, TypeError, RuntimeError) as error:
        found = re.search(r'In file "(.+)", line (\d+)\n\s*(.*)', str(error))
        place, text = source, source.removeprefix("--gin.")
        if found:
            place, text = f"{found[1]}, line {found[2]}", found[3]
        name = text.partition("=")[0].strip() if "=" in text else ""
        problem = _first_line(error).rstrip(".")
        if unset := re.match(r"No bindings specified for '(.+)/gin\.macro'", problem):
            problem = f"macro {unset[1]!r} is used but has no value"
        known = _known_names(fn, verb)
        hint = _nearest(name, known) if name else ""
        if problem.startswith("No configurable matching") and name in known:
            owner = name.partition(".")[0]
            hint = f"; {name!r} exists, but this run's gin files do not refer to @{owner}()"
        raise UserError(f"{place}: {problem}{hint}") from error


def _known_names(fn: Verb, verb: str) -> set[str]:
    """Every `Name.argument` that the modules loaded so far offer, and the verb's own arguments."""
    found = {f"{verb}.{argument}" for argument in inspect.signature(fn).parameters}
    prefixes = ("composer2_jax.", fn.__module__)
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(prefixes)]
    for module in modules:
        for name, thing in list(vars(module).items()):
            if not callable(thing) or getattr(thing, "__module__", None) != module.__name__:
                continue
            try:
                found.update(f"{name}.{p}" for p in inspect.signature(thing).parameters)
            except (TypeError, ValueError):
                continue  # some builtins have no signature
    return {name for name in found if not name.endswith(".workdir")}


def _nearest(name: str, known: set[str]) -> str:
    """`; the nearest known name is ...` for a misspelt name, whatever module path it carries."""
    tail = ".".join(name.rpartition("/")[2].split(".")[-2:])
    match = difflib.get_close_matches(tail, sorted(known), 1, 0.5)
    if match == [tail]:
        return ""  # the name is right: something else is wrong
    return f"; the nearest known name is {match[0]!r}" if match else ""


# Checks of what was bound


def _check_bindings(fn: Verb, bound: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Unused bindings, values of the wrong type and missing required arguments are bad input."""
    own = f"{fn.__module__}.{fn.__name__}"
    used = _reachable(own, bound)
    for (scope, selector), arguments in bound.items():
        if selector.startswith("gin."):
            continue
        target = gin.config._REGISTRY[selector].wrapped  # gin has no public way from name to object
        label = f"{scope}/{target.__name__}" if scope else target.__name__
        if selector not in used:
            raise UserError(
                f"{label}.{next(iter(arguments))} is bound but nothing in this run uses it: "
                f"remove the binding, or refer to @{target.__name__}()"
            )
        hints = _type_hints(target)
        for name, value in arguments.items():
            if isinstance(value, gin.config.ConfigurableReference):
                if value.configurable.selector != "gin.macro":
                    continue
                value = value.scoped_configurable_fn()
            if name in hints and not fits(value, hints[name]):
                wanted = inspect.formatannotation(hints[name])
                raise UserError(f"{label}.{name} = {value!r} has the wrong type: needs {wanted}")
    given = bound.get(("", own), {}).keys() | {"workdir"}
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise UserError(f"{fn.__name__}.{name} has no value: bind it in a gin file")


def _reachable(start: str, bound: dict[tuple[str, str], dict[str, Any]]) -> set[str]:
    """The selectors that a call of `start` can reach through references and macros."""
    found, waiting = {start}, [start]
    while waiting:
        selector = waiting.pop()
        arguments = [values for (_, name), values in bound.items() if name == selector]
        for reference in gin.config.iterate_references(arguments):
            if reference.configurable.selector not in found:
                found.add(reference.configurable.selector)
                waiting.append(reference.configurable.selector)
    return found


def _type_hints(target: Any) -> dict[str, Any]:
    """Annotations of a function or class, evaluated; {} where only a type checker can."""
    try:
        plain = dataclasses.is_dataclass(target) or not inspect.isclass(target)
        return typing.get_type_hints(target if plain else target.__init__)
    except (NameError, TypeError):
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a gin value may stand for an argument annotated `hint`; True where unsure."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in arguments)
    if origin is typing.Literal:
        return value in arguments
    if hint in (None, type(None)):
        return value is None
    container = origin or hint
    if container in (tuple, list, set, frozenset, Sequence, Iterable):
        return isinstance(value, (tuple, list)) and _elements_fit(value, arguments)
    if container in (dict, Mapping):
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str)
    return isinstance(value, hint) if hint in (bool, str) else True


def _elements_fit(values: Sequence[Any], hints: tuple[Any, ...]) -> bool:
    """Whether a container's elements fit the arguments of its annotation: `int, ...` or `int, str`.

    What gin has not called yet is taken as it is.
    """
    if len(hints) < 2 or hints[1] is ...:
        hints = hints[:1] * len(values) or (Any,) * len(values)
    called = gin.config.ConfigurableReference
    return len(hints) == len(values) and all(
        isinstance(value, called) or fits(value, hint)
        for value, hint in zip(values, hints, strict=True)
    )


# Help


def usage(fn: Verb, verb: str, doc: str) -> str:
    """The text of `--help`: what the verb is, its flags, and the arguments that gin can bind."""
    lines = [
        doc.strip(),
        "",
        f"usage: python -m composer2_jax.{verb} --gin_file=FILE [--gin.NAME=VALUE] --workdir=DIR",
        "",
        "flags:",
        "  --gin_file=FILE    a gin file; may be given several times, later ones win",
        "  --gin.NAME=VALUE   binds one argument or macro; wins over the files",
        "  --workdir=DIR      directory of this run; relative paths in gin start here",
        "",
        f"arguments ({fn.__module__}.{fn.__name__}):",
    ]
    lines += _arguments(fn, verb)
    for hint in _type_hints(fn).values():
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            lines += ["", f"{hint.__name__} ({hint.__module__}):", *_arguments(hint, hint.__name__)]
    return "\n".join(lines)


def _arguments(target: Callable[..., Any], owner: str) -> list[str]:
    """One line for each argument: name, type, default, and what the docstring says of it."""
    about = dict(re.findall(r"^\s+(\w+): (\S.*)$", inspect.getdoc(target) or "", re.MULTILINE))
    hints = _type_hints(target)
    lines = []
    for name, parameter in inspect.signature(target).parameters.items():
        if name == "workdir":
            continue
        hint = hints.get(name, parameter.annotation)
        kind = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        kind = "any" if hint is parameter.empty else re.sub(r"[\w.]+\.(?=\w)", "", kind)
        value = parameter.default
        default = "required" if value is parameter.empty else repr(value)
        if dataclasses.is_dataclass(value):
            default = f"{type(value).__name__}()"
        text = f"  {owner}.{name}: {kind} = {default}"
        lines.append(f"{text:<50}  {about[name]}" if name in about else text)
    return lines


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].strip()
