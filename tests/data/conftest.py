"""A small corpus, tokenizer and prepared directory, shared by the tests of the data package."""

import json
from pathlib import Path
from typing import Any

import pytest

from composer2_jax.agent.messages import Message, ToolCall
from composer2_jax.data.prepare import prepare_data
from composer2_jax.data.tokenizer import Tokenizer
from composer2_jax.envs.task import Task, write_tasks

FUNCTION = '''
def {name}(items, limit):
    """{words} the items."""
    total = {number}
    for item in items:
        if item < limit and item != {number}:
            total += item * {number}
        elif item == limit:
            total -= 1
    return total
'''
WORDS = ("Count", "Sum", "Weigh", "Rank", "Measure", "Collect", "Compare", "Filter")


def conversation(task_id: str, trained: tuple[bool, ...] = (True, True, True)) -> dict[str, Any]:
    """A transcript line as the verb `tasks` writes it."""
    messages = [
        Message("user", f"{task_id}(3) is 4 not 5"),
        Message("assistant", "", (ToolCall("read_file", {}),)),
        Message("tool", "1|def f(x):\n2|    return x + 1"),
        Message("assistant", "", (ToolCall("edit_file", {"old": " 1", "new": " 2"}),)),
        Message("tool", "ok"),
        Message("assistant", "", (ToolCall("finish", {}),)),
    ]
    return {
        "task_id": task_id,
        "messages": [message.to_dict() for message in messages],
        "trained": list(trained),
        "reward": 1.0,
    }


def write_tasks_dir(folder: Path) -> Path:
    """What `prepare_data` needs of the verb `tasks`: transcripts and the tasks to be reported."""
    for split, function in (("validation", "kept_apart"), ("heldout", "also_apart")):
        task = Task(
            id=split,
            split=split,
            files={"m.py": "def f(x):\n    return x"},
            prompt="f(1) is 1 not 2",
            test_command="true",
            hidden_calls=("f(1)",),
            hidden_expected=("2",),
            module="m.py",
            function=function,
            group=split,
            fault_kind="constant",
            line=2,
            fixed_line="    return x + 1",
        )
        write_tasks(folder / f"{split}.jsonl", [task])
    lines = [conversation(f"task_{n}", (n % 2 == 0, True, True)) for n in range(6)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "transcripts.jsonl").write_text(text, encoding="utf-8")
    return folder


def write_sources(folder: Path, files: int = 40) -> Path:
    """A folder of Python sources: one must be skipped, one holds a function to exclude."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        functions = [
            FUNCTION.format(name=f"f{number}_{k}", words=WORDS[(number + k) % 8], number=number + k)
            for k in range(3)
        ]
        # In every file, so in both splits: it may stay in one of them only.
        functions.append(FUNCTION.format(name="everywhere", words="Add", number=1))
        (folder / f"m{number}.py").write_text("".join(functions), encoding="utf-8")
    (folder / "latin.py").write_bytes(b"# caf\xe9\nx = 1\n")
    apart = FUNCTION.format(name="kept_apart", words="Keep", number=7)
    (folder / "apart.py").write_text(apart + "\nx = 1\n", encoding="utf-8")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_m.py").write_text("def test_it():\n    assert 1\n", encoding="utf-8")
    return folder


def prepare(workdir: Path, root: Path, **changes: Any) -> dict[str, Any]:
    """`prepare_data` on the small folder, without TensorFlow unless asked."""
    arguments = {
        "tasks_dir": str(root / "tasks"),
        "sources_root": str(root / "sources"),
        "vocab_size": 560,
        "reader": "python",
        "max_document_tokens": 224,
        **changes,
    }
    return prepare_data(workdir, **arguments)


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    write_sources(root / "sources")
    (root / "tasks").mkdir()
    write_tasks_dir(root / "tasks")
    return root


@pytest.fixture(scope="session")
def prepared(small_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory: tokenizer.model, documents/, tokens/ and mixtures.json."""
    workdir = tmp_path_factory.mktemp("prepared")
    prepare(workdir, small_root)
    return workdir


@pytest.fixture(scope="session")
def tokenizer(prepared: Path) -> Tokenizer:
    return Tokenizer(prepared / "tokenizer.model")
