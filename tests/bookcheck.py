"""Opens every page of the built book in a browser, wide and as narrow as a phone's, and checks every link inside it.

    python tests/bookcheck.py _build/html

Reported are errors of scripts, local files that do not load, broken images, pages wider than the screen, links to pages or
places that do not exist, and a search that finds nothing. Needs Chromium (Debian: `apt install chromium`) and no network: what
a page fetches from elsewhere is left out.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 390)
SOUGHT = "herding"  # that every book of ours writes of
# The theme's own: a script that it writes twice, its first visit, and a list of contents sought where a page has none.
THEIRS = ("THEBE_JS_URL", "Got invalid theme mode", "Cannot read properties of null (reading 'classList')")
LISTEN = """<script>
window.__found = [];
window.addEventListener("error", event => {
  const source = event.target && (event.target.src || event.target.href);
  if (event.message) window.__found.push("script: " + event.message);
  else if (source && source.startsWith("file:")) window.__found.push("does not load: " + source.split("/").pop());
}, true);
window.addEventListener("unhandledrejection", event => window.__found.push("script: " + event.reason));
const tell = console.error;
console.error = (...words) => { window.__found.push("console: " + words.join(" ")); tell(...words); };
</script>"""
HARNESS = """<!doctype html><pre id="result"></pre><script>
const pages = %s, widths = %s, result = {};
const wait = time => new Promise(done => setTimeout(done, time));
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; frame.src = page; });
  await wait(300);
  const inside = frame.contentWindow, body = frame.contentDocument.documentElement;
  const found = [...(inside.__found || ["no script ran"])], images = [...frame.contentDocument.images];
  for (const image of images) image.loading = "eager";
  for (let i = 0; i < 50 && images.some(image => !image.complete); i++) await wait(100);
  for (const image of images) if (!image.naturalWidth) found.push("broken image: " + image.src.split("/").pop());
  if (body.scrollWidth > width) found.push(`is ${body.scrollWidth} pixels wide`);
  if (page.includes("?q=")) {
    await wait(3000);
    if (!frame.contentDocument.querySelector("#search-results li")) found.push("the search finds nothing");
  }
  frame.remove();
  return found;
}
(async () => {
  for (const page of pages) for (const width of widths) {
    const found = await look(page, width);
    if (found.length) result[`${page} at ${width}`] = found;
  }
  document.getElementById("result").textContent = JSON.stringify({opened: pages.length * widths.length, result});
})();
</script>"""


def browser() -> str | None:
    """The command that starts Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places |= {value for name in ("id", "name") if (value := given.get(name))}
        if target := given.get("href" if tag in ("a", "link") else "src" if tag in ("img", "script") else ""):
            self.links.append(target)


def pages(html: Path) -> list[Path]:
    """Every page of the book."""
    return sorted(path for path in html.rglob("*.html") if "_static" not in path.parts)


def dead_links(html: Path) -> Iterator[str]:
    """Links inside the book that lead nowhere."""
    read = {path.resolve(): Page(path.read_text()) for path in pages(html)}
    for path, page in read.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.relative_to(html.resolve())}: links to {link}, which does not exist"
            elif parts.fragment and target in read and unquote(parts.fragment) not in read[target].places:
                yield f"{path.relative_to(html.resolve())}: links to {link}, a place that is not there"


def opened(html: Path, command: str) -> Iterator[str]:
    """What goes wrong when the pages are opened in a browser."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "html"
        shutil.copytree(html, copy)
        for path in pages(copy):
            path.write_text(re.sub(r"(<head[^>]*>)", lambda found: found[1] + LISTEN, path.read_text(), count=1))
        names = [os.fspath(path.relative_to(copy)) for path in pages(copy)]
        names = [f"{name}?q={SOUGHT}" if name == "search.html" else name for name in names]
        (copy / "harness.html").write_text(HARNESS % (json.dumps(names), json.dumps(WIDTHS)))
        found = _dumped(command, copy / "harness.html", Path(folder))
    text = re.search(r'<pre id="result">(.*?)</pre>', found, re.S)
    if not text or not text[1]:
        yield "the browser did not get to the end of the pages"
        return
    answer = json.loads(text[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    if answer["opened"] != len(names) * len(WIDTHS):
        yield f"only {answer['opened']} of {len(names) * len(WIDTHS)} views were opened"
    for view, wrong in answer["result"].items():
        yield from (f"{view}: {one}" for one in wrong if not any(text in one for text in THEIRS))


def _dumped(command: str, page: Path, folder: Path) -> str:
    """The page as it stands when its scripts are done."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,1000"]
    done = subprocess.run(
        [command, *flags, "--virtual-time-budget=600000", "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=840
    )
    return done.stdout


def main(arguments: list[str]) -> int:
    """Check a built book and return the exit status."""
    html = Path(arguments[0] if arguments else "_build/html")
    if not (html / "index.html").is_file():
        print(f"there is no built book in {html}: run `make book` first", file=sys.stderr)
        return 1
    command = browser()
    if command is None:
        print("no Chromium is installed: on Debian, `apt install chromium`", file=sys.stderr)
        return 1
    wrong = [*dead_links(html), *opened(html, command)]
    print("\n".join(wrong) or f"{len(pages(html))} pages, {len(WIDTHS)} widths: nothing wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
