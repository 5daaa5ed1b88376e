"""The shell of every page that a run leaves behind, and the pieces that pages share.

A page is one file: style and script are inside it, fonts are the reader's own. Its policy forbids
any request and runs only the script whose hash it names, so that even a text that escaped its
quoting could do nothing. No jax; the files of `evals` may import it.
"""

import base64
import hashlib
from html import escape
from pathlib import Path
from string import Template

STATIC = Path(__file__).with_name("static")


def static(name: str) -> str:
    """The text of a file of `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


def page(title: str, body: str, *, nav: str = "", footer: str = "") -> str:
    """A self-contained HTML page around `body` (HTML); `title` is plain text."""
    script = static("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(static("page.html")).substitute(
        title=escape(title),
        name="composer2_jax",
        nav=nav,
        body=body,
        footer=footer,
        style=static("chart.css") + static("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def section(anchor: str, title: str, body: str) -> str:
    """A titled part of a page; all arguments are HTML."""
    return f'<section id="{anchor}"><h2>{title}</h2>{body}</section>'


def figure(charts: str, caption: str, css: str = "charts") -> str:
    """A grid of charts over its caption."""
    return f'<figure><div class="{css}">{charts}</div><figcaption>{caption}</figcaption></figure>'


def absent(what: str) -> str:
    """The note in the place of something that this run does not have yet."""
    return f'<p class="note">{what}: not run.</p>'
