"""The check of the built book finds what it is there to find: on pages made wrong each mistake is named, on right ones nothing."""

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
