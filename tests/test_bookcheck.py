"""The check of the built book finds what it is there to find: on pages made wrong each mistake is named, on right ones nothing."""

import subprocess
import sys
from pathlib import Path

import bookcheck
import pytest

RIGHT = '<!doctype html><html><head></head><body><h1 id="top">Right</h1><a href="{link}">here</a>{more}</body></html>'
PIXEL = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
needs_browser = pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")


@pytest.fixture
def book(tmp_path):
    """Return a function that writes a book of two pages."""

    def write(link: str = "other.html#top", more: str = "") -> Path:
        (tmp_path / "index.html").write_text(RIGHT.format(link=link, more=more))
        (tmp_path / "other.html").write_text(RIGHT.format(link="index.html", more=""))
        (tmp_path / "image.svg").write_text(PIXEL)
        return tmp_path

    return write


@pytest.mark.parametrize("link", ["other.html", "#top", "other.html#top", "https://example.org/none", "image.svg", "mailto:a@b"])
def test_links_that_lead_somewhere(book, link):
    assert list(bookcheck.dead_links(book(link))) == []


@pytest.mark.parametrize(("link", "words"), [("none.html", "does not exist"), ("other.html#none", "a place that is not there")])
def test_dead_links(book, link, words):
    assert list(bookcheck.dead_links(book(link))) == [
        f"index.html: links to {link}, {'which ' if words == 'does not exist' else ''}{words}"
    ]


@needs_browser
@pytest.mark.slow
def test_what_only_a_browser_sees(book):
    wrong = '<img src="none.png"><img src="image.svg"><div style="width:600px">wide</div><script>nothing.there()</script>'
    found = list(bookcheck.opened(book(more=wrong), bookcheck.browser()))
    narrow = [line for line in found if line.startswith("index.html at 390")]
    assert any("broken image: none.png" in line for line in narrow)
    assert any("does not load: none.png" in line for line in narrow)
    assert any("pixels wide" in line for line in narrow)
    assert any("script: Uncaught ReferenceError" in line for line in narrow)
    assert not any("pixels wide" in line for line in found if "1280" in line)
    assert not any("other.html at" in line or "image.svg" in line for line in found)


@pytest.mark.parametrize(("browser", "words"), [(None, "apt install chromium"), ("chromium", "run `make book` first")])
def test_what_is_missing_is_said_in_a_sentence(book, monkeypatch, capsys, browser, words):
    monkeypatch.setattr(bookcheck, "browser", lambda: browser)
    folder = book() if browser is None else book() / "none"
    assert bookcheck.main([str(folder)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_it_is_a_command(book):
    command = [sys.executable, Path(bookcheck.__file__), book("none.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "index.html: links to none.html" in done.stdout or "apt install chromium" in done.stderr
