"""The book builds without a warning and says what the records say."""

from pathlib import Path

import bookcheck
import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = [pytest.mark.book, pytest.mark.slow]


def test_every_page_of_the_contents_is_built(html):
    lines = [line.strip(" -") for line in (ROOT / "_toc.yml").read_text().splitlines()]
    pages = [line.split(":")[1].strip() for line in lines if line.startswith(("file:", "root:"))]
    assert pages
    assert not [page for page in pages if not (html / page).with_suffix(".html").is_file()]


def test_no_page_carries_a_traceback(html):
    assert not [page.name for page in html.rglob("*.html") if "Traceback" in page.read_text()]


def test_every_link_inside_the_book_leads_somewhere(html):
    assert list(bookcheck.dead_links(html)) == []


def test_headings_texts_of_images_and_addresses_are_there(html):
    assert list(bookcheck.unfinished(html)) == []


@pytest.mark.skipif(bookcheck.browser() is None, reason="no Chromium is installed")
def test_a_browser_opens_every_page_and_finds_nothing_wrong(html):
    assert list(bookcheck.opened(html, bookcheck.browser())) == []
