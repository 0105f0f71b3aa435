"""The check of the built book finds what it is there to find: on pages made wrong each mistake is named, on right ones nothing."""

import re
import subprocess
import sys
from pathlib import Path

import bookcheck
import pytest

PAGE = '<!doctype html><html><head></head><body><h1 id="top">Right</h1><a href="{link}">here</a>{more}</body></html>'
PIXEL = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


@pytest.fixture
def book(tmp_path):
    """Return a function that writes a book of two pages."""

    def write(link: str = "other.html#top", more: str = "") -> Path:
        (tmp_path / "index.html").write_text(PAGE.format(link=link, more=more))
        (tmp_path / "other.html").write_text(PAGE.format(link="index.html", more=""))
        (tmp_path / "image.svg").write_text(PIXEL)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        *((link, "") for link in ("other.html", "#top", "other.html#top", "https://example.org/none", "image.svg", "mailto:a@b")),
        ("none.html", "which does not exist"),
        ("other.html#none", "a place that is not there"),
    ],
)
def test_links(book, link, wrong):
    assert list(bookcheck.dead_links(book(link))) == ([f"index.html: links to {link}, {wrong}"] if wrong else [])


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ('<img src="image.svg" alt="a dot">', []),
        ('<img src="image.svg" alt=" ">', ["an image without a text: image.svg"]),
        ('<a href="https://example.org/a?b=c#d">x</a>', []),
        ('<a href="https://example org">x</a>', ["links to https://example org, which is no address"]),
        ('<a href="htp://example.org">x</a>', ["links to htp://example.org, which is no address"]),
    ],
)
def test_texts_of_images_and_addresses(book, more, wrong):
    assert list(bookcheck.unfinished(book(more=more))) == [f"index.html: {one}" for one in wrong]


def test_headings(book):
    folder = book()
    (folder / "notebooks").mkdir()
    (folder / "index.html").rename(folder / "notebooks/index.html")
    (folder / "other.html").write_text("<p>bare</p>")
    (folder / "index.html").write_text('<meta http-equiv="Refresh" content="0; url=other.html" />')
    assert list(bookcheck.unfinished(folder)) == ["notebooks/index.html: has no h2", "other.html: has no h1"]


LAID_OUT = """<!doctype html><html data-theme="light"><head><style>
body {{ background: #fff; color: #222; }}
[data-theme="dark"] body {{ background: #111; color: #eee; }}
</style></head><body><article><h1>One</h1><h2>Two</h2><div style="height:{above}px"></div>
<table><caption>said</caption><tr><td style="{cell}">number</td></tr></table>{more}</article></body></html>"""


@pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")
@pytest.mark.slow
def test_what_is_late_or_pale_or_without_words(book):
    folder = book()
    (folder / "notebooks").mkdir()
    shown = {
        "right": dict(above=600, cell="", more='<p><a href="right.html" style="color:#06c;background:#fff">words</a></p>'),
        "late": dict(above=800, cell="", more=""),
        "pale": dict(above=0, cell="color: #999", more=""),
        "dark": dict(above=0, cell="color: #333", more='<a href="right.html"></a>'),
    }
    for name, given in shown.items():
        (folder / f"notebooks/{name}.html").write_text(LAID_OUT.format(**given))
    found = "\n".join(bookcheck.opened(folder, bookcheck.browser()))
    assert re.findall(r"notebooks/(\w+).html at 1280: (the first|contrast of \S+ in the \w+|a link)", found) == [
        ("dark", "contrast of 1.5 in the dark"),
        ("dark", "a link"),
        ("late", "the first"),
        ("pale", "contrast of 2.8 in the light"),
    ]


@pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")
@pytest.mark.slow
def test_what_only_a_browser_sees(book):
    wrong = '<img src="none.png"><img src="image.svg"><div style="width:600px">wide</div><script>nothing.there()</script>'
    found = list(bookcheck.opened(book(more=wrong), bookcheck.browser()))
    narrow = "\n".join(line for line in found if line.startswith("index.html at 390"))
    for words in ("broken image: none.png", "does not load: none.png", "pixels wide", "script: Uncaught ReferenceError"):
        assert words in narrow
    assert not [line for line in found if "other.html at" in line or "image.svg" in line or ("1280" in line and "wide" in line)]


@pytest.mark.parametrize(("link", "words"), [("none.html", "links to none.html"), (None, "run `make book` first")])
def test_it_is_a_command(book, tmp_path, link, words):
    folder = book(link) if link else tmp_path / "none"
    done = subprocess.run([sys.executable, bookcheck.__file__, folder], capture_output=True, text=True)
    assert done.returncode == 1
    assert words in done.stdout or words in done.stderr or "apt install chromium" in done.stderr
