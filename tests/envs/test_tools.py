"""Reading and searching: what is shown, and where the focus goes."""

from composer2_jax.envs.tools.searching import rank, words
from tests.envs.samples import state_of, use


def test_reading_sets_the_focus_and_numbers_lines() -> None:
    with state_of({"a.py": b"one\r\ntwo\r\n", "b.py": "\ufeffthree".encode()}) as state:
        assert use(state, "read_file") == "error: no file read yet"
        assert use(state, "read_file", path="./a.py") == "1|one\n2|two"
        assert use(state, "read_file", line="2") == "2|two"
        assert use(state, "read_file", line="2-9") == "2|two"
        assert use(state, "read_file", line="3") == "error: a.py has 2 lines"
        assert use(state, "read_file") == "1|one\n2|two"
        assert use(state, "read_file", path="b.py") == "1|three"
        assert use(state, "read_file", path="c.py") == "error: no such file"


def test_an_edit_needs_a_file() -> None:
    with state_of({"a.py": b"one"}) as state:
        assert use(state, "edit_file", old="one", new="two") == "error: no file read yet"


def test_a_search_finds_the_definition_before_uses_and_tests() -> None:
    files = {
        "lib/uses.py": b"from lib.clamp import clamp\nprint(clamp(5, 0, 3))\n",
        "lib/clamp.py": b"# limits\ndef clamp(x, lo, hi):\n    return x\n",
        "test.py": b"def clamp(): clamp(5, 0, 3)\n",
        "pic.bin": b"\0clamp",
    }
    with state_of(files) as state:
        assert use(state, "search") == "lib/clamp.py:2|def clamp(x, lo, hi):"
        assert use(state, "read_file", line="3|") == "3|    return x"
        state.search_hits = 9
        shown = [line.split(":")[0] for line in use(state, "search", query="clamp").splitlines()]
        assert shown[0] == "lib/clamp.py" and shown[-1] == "test.py"
        assert use(state, "search", query="zebra") == "error: nothing found"


def test_a_search_matches_parts_of_identifiers_and_prefers_rare_words() -> None:
    assert words("parse_HTTPHeader2 x") == [
        "parse_httpheader2",
        "parse",
        "http",
        "header",
        "2",
        "x",
    ]
    scores = rank(["the the value", "the header", "def readHeader(the):"], "header value")
    assert scores[0] > 0 and scores[1] > 0 and scores[2] > 0
    assert rank(["a", "b"], "c") == [0.0, 0.0]
