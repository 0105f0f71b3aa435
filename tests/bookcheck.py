"""Opens every page of the built book in a browser, wide and as narrow as a phone's, and checks every link inside it.

    python tests/bookcheck.py _build/html

Reported are errors of scripts, local files that do not load, broken images, pages wider than the screen, links to pages or
places that do not exist, and a search that finds nothing; pages without headings, images without a text in their place, links
elsewhere that are no addresses; text too pale for its ground, in the light and in the dark theme; and notebooks whose first table
or figure does not begin on the first screen. Needs Chromium (Debian: `apt install chromium`) and no network: what a page fetches
from elsewhere is left out.
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
SCREEN = 800  # pixels, above which a notebook's first table or figure begins
LATE: tuple[str, ...] = ()  # pages of notebooks that are exempt from this
CONTRAST = 4.5  # of text with its ground, by WCAG
ADDRESS = re.compile(r"https?://[\w-]+(\.[\w-]+)+(:\d+)?([/?#][^\s<>\"{}|\\^`]*)?|mailto:\S+@\S+|data:\S+")
# The theme's own: a script that it writes twice, its first visit, and a list of contents sought where a page has none.
THEIRS = ("THEBE_JS_URL", "Got invalid theme mode", "Cannot read properties of null (reading 'classList')")
LISTEN = """<style>* { transition: none !important; }</style><script>
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
const pages = %s, widths = %s, late = %s, screen = %s, least = %s, result = {};
const LEFT_OUT = "pre, script, style, mjx-container, .math, .headerlink";
const wait = time => new Promise(done => setTimeout(done, time));
const numbers = color => color.match(/[\\d.]+/g).map(Number);
const light = rgb => rgb.slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
function pale(page, theme) {  // pairs of colours with too little contrast, each with the words that have it
  page.documentElement.dataset.theme = theme;
  const style = element => page.defaultView.getComputedStyle(element), found = new Map();
  const article = page.querySelector("article"), words = page.createTreeWalker(article || page.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const text = words.currentNode.data.trim(), element = words.currentNode.parentElement;
    if (!text || element.closest(LEFT_OUT) || !element.getClientRects().length) continue;
    let ground = element;
    while (ground && (numbers(style(ground).backgroundColor)[3] ?? 1) < 0.5) ground = ground.parentElement;
    const pair = [style(element).color, ground ? style(ground).backgroundColor : "rgb(255, 255, 255)"];
    const [low, high] = pair.map(color => light(numbers(color)) + 0.05).sort((a, b) => a - b);
    const said = `contrast of ${(high / low).toFixed(1)} in the ${theme} theme: "${text.slice(0, 30)}"`;
    if (high / low < least) found.set(pair.join(" on "), said);
  }
  return [...found.values()];
}
function laid_out(name, page) {
  const found = [...pale(page, "light"), ...pale(page, "dark")];
  for (const link of page.querySelectorAll("article a[href]"))
    if (!link.textContent.trim() && !link.querySelector("img, svg"))
      found.push("a link without words: " + link.getAttribute("href"));
  const seen = [...page.querySelectorAll("article :is(table, figure, img, canvas)")].filter(e => e.getClientRects().length);
  const tops = seen.map(element => element.getBoundingClientRect().top + page.defaultView.scrollY);
  const first = Math.round(Math.min(...tops));
  if (name.startsWith("notebooks/") && !late.includes(name) && !(first < screen))
    found.push(`the first table or figure begins at ${first} pixels`);
  return found;
}
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
  if (width > screen && !page.startsWith("search.html")) found.push(...laid_out(page, frame.contentDocument));
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
    """What a page links to, the places in it that can be linked to, its headings and the images without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.headings: set[str] = set()
        self.bare: list[str] = []
        self.forwards = False  # to another page
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places |= {value for name in ("id", "name") if (value := given.get(name))}
        if target := given.get("href" if tag in ("a", "link") else "src" if tag in ("img", "script") else ""):
            self.links.append(target)
        if tag in ("h1", "h2"):
            self.headings.add(tag)
        self.forwards |= given.get("http-equiv") == "Refresh"
        if tag == "img" and not (given.get("alt") or "").strip():
            self.bare.append((given.get("src") or "").split("/")[-1][:60])


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


def unfinished(html: Path) -> Iterator[str]:
    """Headings that are missing, images without a text, and links elsewhere that are no addresses."""
    for path in pages(html):
        page, name = Page(path.read_text()), path.relative_to(html)
        wanted = ("h1", "h2") if name.parts[0] == "notebooks" else ("h1",)
        yield from (f"{name}: has no {heading}" for heading in wanted if heading not in page.headings and not page.forwards)
        yield from (f"{name}: an image without a text: {image}" for image in page.bare)
        outside = (link for link in page.links if urlsplit(link).scheme or urlsplit(link).netloc)
        yield from (f"{name}: links to {link[:80]}, which is no address" for link in outside if not ADDRESS.fullmatch(link))


def opened(html: Path, command: str) -> Iterator[str]:
    """What goes wrong when the pages are opened in a browser."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "html"
        shutil.copytree(html, copy)
        for path in pages(copy):
            path.write_text(re.sub(r"(<head[^>]*>)", lambda found: found[1] + LISTEN, path.read_text(), count=1))
        names = [os.fspath(path.relative_to(copy)) for path in pages(copy)]
        names = [f"{name}?q={SOUGHT}" if name == "search.html" else name for name in names]
        given = (names, WIDTHS, LATE, SCREEN, CONTRAST)
        (copy / "harness.html").write_text(HARNESS % tuple(map(json.dumps, given)))
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
    wrong = [*dead_links(html), *unfinished(html), *opened(html, command)]
    print("\n".join(wrong) or f"{len(pages(html))} pages, {len(WIDTHS)} widths: nothing wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
