"""Writes a git repository of one commit without running git: blobs, trees, a commit, an index.

One commit, no hooks, no reflog, no remote, nothing dangling: there is no past in which an agent
could find the answer. Equal files give equal bytes. Imported by `workspace`; imports the standard
library only.
"""

import hashlib
import struct
import zlib
from collections.abc import Mapping

FILE_MODE, TREE_MODE = 0o100644, 0o40000
AUTHOR = b"Task <task@localhost> 946684800 +0000"
MESSAGE = b"Start\n"
CONFIG = b"""\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
[user]
\tname = Agent
\temail = agent@localhost
"""

Objects = dict[str, bytes]


def one_commit(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files below `.git` of a repository whose only commit holds `files`."""
    objects: Objects = {}
    blobs = {path: _add(objects, b"blob", data) for path, data in files.items()}
    tree = _add_tree(objects, blobs)
    body = b"tree %s\nauthor %s\ncommitter %s\n\n%s" % (tree.encode(), AUTHOR, AUTHOR, MESSAGE)
    commit = _add(objects, b"commit", body)
    return {
        "HEAD": b"ref: refs/heads/main\n",
        "config": CONFIG,
        "refs/heads/main": commit.encode() + b"\n",
        "index": _index(files, blobs),
        **objects,
    }


def _add(objects: Objects, kind: bytes, body: bytes) -> str:
    """Adds a loose object and returns its name."""
    data = b"%s %d\0%s" % (kind, len(body), body)
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    objects[f"objects/{name[:2]}/{name[2:]}"] = zlib.compress(data, 1)
    return name


def _add_tree(objects: Objects, blobs: Mapping[str, str]) -> str:
    """Adds the tree of `path -> blob name`, and those below it."""
    entries: list[tuple[bytes, int, str]] = []
    below: dict[str, dict[str, str]] = {}
    for path, name in blobs.items():
        first, slash, rest = path.partition("/")
        if slash:
            below.setdefault(first, {})[rest] = name
        else:
            entries.append((first.encode(), FILE_MODE, name))
    for first, inner in below.items():
        entries.append((first.encode(), TREE_MODE, _add_tree(objects, inner)))
    # Git orders a directory as if its name ended in a slash.
    entries.sort(key=lambda entry: entry[0] + (b"/" if entry[1] == TREE_MODE else b""))
    body = b"".join(b"%o %s\0%s" % (mode, n, bytes.fromhex(name)) for n, mode, name in entries)
    return _add(objects, b"tree", body)


def _index(files: Mapping[str, bytes], blobs: Mapping[str, str]) -> bytes:
    """An index (version 2) without file times: git compares contents once and fills them in."""
    parts = [b"DIRC" + struct.pack(">II", 2, len(files))]
    for path in sorted(files, key=str.encode):
        name = path.encode()
        entry = struct.pack(
            ">10I20sH",
            *(0, 0, 0, 0, 0, 0, FILE_MODE, 0, 0, len(files[path])),
            bytes.fromhex(blobs[path]),
            min(len(name), 0xFFF),
        )
        entry += name
        parts.append(entry + b"\0" * (8 - len(entry) % 8))
    data = b"".join(parts)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()
