"""The documentation site builds without warnings, loads nothing from other servers, agrees with the code."""

from __future__ import annotations

import ast
import html
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from graphzoo.cli.commands import COMMANDS
from graphzoo.cli.reproduce import reproduce_parser
from graphzoo.training.options import FLAGS, OPTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
NOTEBOOKS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.ipynb"))
BUILT = [name.rpartition(".")[0] + ".html" for name in PAGES + NOTEBOOKS]
ENCODERS = ("knowformer", "nodeformer", "galit", "pencil")

pytest.importorskip("material", reason="the extra `docs` is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make site` builds it, with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request, site, tmp_path_factory):
    """Findings of a browser on all pages of the site, at the width of a phone and of a laptop."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    shutil.copy(ROOT / "tests/helpers/browser_probe.html", site / "probe.html")
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            shown = subprocess.run(
                [
                    browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                    "--no-first-run",
                    "--disable-background-networking", "--disable-component-update", "--disable-sync",
                    f"--user-data-dir={tmp_path_factory.mktemp('browser')}", "--virtual-time-budget=120000",
                    f"--blink-settings=preferredColorScheme={int(request.param == 'light')}", "--dump-dom",
                    f"http://127.0.0.1:{server.server_port}/probe.html#{','.join(BUILT)}",
                ],
                capture_output=True, text=True, timeout=800,
            ).stdout  # fmt: skip
        finally:
            server.shutdown()
            thread.join()
            (site / "probe.html").unlink()
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert found, shown[-2000:]
    return request.param, json.loads(html.unescape(found[1]))


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_pages_can_be_read_on_a_phone_and_in_the_dark(seen):
    scheme, found = seen
    assert {page["scheme"] for page in found["pages"]} == {{"light": "default", "dark": "slate"}[scheme]}
    for width in (390, 1400) if scheme == "light" else (1400,):
        assert [page["url"] for page in found["pages"] if page["width"] == width] == BUILT
    for page in found["pages"]:
        where = page["url"], page["width"], scheme
        assert page["too_wide"] <= 0, where
        assert not page["cut_tables"] or page["width"] < 1400, where
        assert not page["without_alt"], where
        assert not page["faint"], where


def test_tables_of_results_sort_filter_and_copy(seen):
    table = seen[1]["table"]
    assert len(table["up"]) > 10 and table["up"] == sorted(table["up"])
    assert table["down"] == sorted(table["down"], reverse=True)
    assert set(table["shown"]) >= {"cora nodeformer", "cora nodeformer (cora-random)"}
    assert all(row.startswith("cora nodeformer") for row in table["shown"])
    assert "graphzoo reproduce galit cora --seeds 0-9" in table["copied"]
    for command in table["copied"]:
        reproduce_parser().parse_args(shlex.split(command)[2:])


@pytest.mark.parametrize("name", ["Makefile", "mkdocs.yml", "docs/install.md"])
def test_where_pages_are_opened_as_files_the_server_for_search_is_named(name):
    """Search fails in a page opened as a file: browsers do not let it load the index."""
    text = (ROOT / name).read_text(encoding="utf-8")
    mentions = [found.start() for found in re.finditer(r"site/index\.html|opened as files", text)]
    assert mentions
    for place in mentions:
        assert "python3 -m http.server -d site" in text[place : place + 200]


@pytest.fixture(scope="module")
def hooks():
    """The modules that MkDocs loads from docs/hooks, by name."""
    sys.path.insert(0, str(DOCS / "hooks"))
    try:
        yield {name: importlib.import_module(name) for name in ("reference", "docstrings", "pages")}
    finally:
        sys.path.remove(str(DOCS / "hooks"))
        for name in ("reference", "docstrings", "pages", "api"):
            sys.modules.pop(name, None)


class References(HTMLParser):
    """Addresses that a browser fetches to show a page, and links of the page."""

    def __init__(self):
        super().__init__()
        self.fetched, self.linked, self.ids, self.style = [], [], set(), False

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        self.style = tag == "style"
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.fetched.append(given.get("src"))
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given.get("href"))
        elif tag == "object":
            self.fetched.append(given.get("data"))
        elif tag == "a":
            self.linked.append(given.get("href"))
        self.fetched += re.findall(r"url\(([^)]*)\)", given.get("style") or "")

    def handle_data(self, data):
        if self.style:
            self.fetched += fetched_by_style(data)


def fetched_by_style(text):
    return re.findall(r"url\([\"']?([^)\"']*)", text) + re.findall(r"@import\s+[\"']([^\"']*)", text)


def is_elsewhere(address):
    return bool(address) and bool(re.match(r"(?:[a-z]+:)?//", address.strip()))


def read(path):
    found = References()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def test_reading_a_page_fetches_nothing_from_elsewhere(site):
    outside = []
    for path in site.rglob("*.html"):
        outside += [f"{path.name}: {address}" for address in read(path).fetched if is_elsewhere(address)]
    for path in site.rglob("*.css"):
        outside += [f"{path.name}: {url}" for url in fetched_by_style(path.read_text()) if is_elsewhere(url)]
    assert outside == []


def test_addresses_elsewhere_are_found():
    found = References()
    found.feed(
        "<script src='//cdn.example/x.js'></script><link rel=preconnect href='https://fonts.example'>"
        "<style>@import 'https://a.example/b.css'; x { background: url(http://c.example/d.png) }</style>"
        "<a href='https://paper.example'>paper</a>"
    )
    assert [address for address in found.fetched if is_elsewhere(address)] == [
        "//cdn.example/x.js",
        "https://fonts.example",
        "http://c.example/d.png",
        "https://a.example/b.css",
    ]


def test_no_page_uses_parts_of_the_theme_that_fetch(site):
    """The theme's script fetches a library for diagrams, and counts of stars and forks for a repository."""
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text and 'data-md-component="source"' not in text, path.name


def test_every_page_is_built_and_in_the_navigation(site):
    linked = set(read(site / "index.html").linked)
    for page in PAGES:
        name = page.removesuffix(".md") + ".html"
        assert (site / name).is_file()
        assert page == "index.md" or name in linked, f"{page} is not in the navigation"
    assert not list(site.rglob("*.py"))


def left_over(text):
    """Paragraphs and list items of a built page that contain Markdown: rows, lists, fences, formulas."""
    found = []
    for words in re.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", text, re.DOTALL):
        words = re.sub(r"<code>.*?</code>", "", words, flags=re.DOTALL)
        if re.search(r"(?:^|\n) *(?:[-*] |\d+\. |\|)|```|\$|<!--", words):
            found.append(words)
    return found


def test_no_markdown_is_left_in_the_text(site):
    """GitHub and MkDocs differ in what they take for a list or a table."""
    assert left_over("<p>One:\n- two</p><p>| a | b |</p><li>$x$</li><p>a - b <code>| - $</code></p>") == [
        "One:\n- two",
        "| a | b |",
        "$x$",
    ]
    found = {path.name: left_over(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert {name: words for name, words in found.items() if words} == {}


def test_formulas_are_drawn_without_scripts(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "arithmatex" not in text and ":math:" not in text and ".. math::" not in text, path.name
    for name in ENCODERS:
        assert (site / f"{name}.html").read_text(encoding="utf-8").count("<math") > 5


def test_a_formula_that_cannot_be_drawn_ends_the_build(hooks):
    pages = hooks["pages"]

    def drawn(tex):
        return pages.on_page_content(f'<span class="arithmatex">\\({tex}\\)</span>', Page())

    class Page:
        class file:
            src_uri = "some.md"

    assert drawn(r"\mathbf x_u") == drawn(r"\mathbf{x}_u") != drawn("x_u")
    with pytest.raises(pages.PluginError, match=r"some.md.*nosuchcommand"):
        drawn(r"\nosuchcommand{x}")


@pytest.mark.parametrize(
    "package",
    [
        *("encoders", "ops", "tasks", "datamodules", "datasets", "metrics", "sampling", "decoders"),
        *("heuristics", "callbacks"),
    ],
)
def test_every_public_name_is_on_an_api_page(site, package):
    ids = set().union(*(read(path).ids for path in (site / "api").glob("*.html"))) - {None}
    module = importlib.import_module(f"graphzoo.{package}")
    homes = {f"{getattr(module, name).__module__}.{name}" for name in module.__all__}
    assert homes - ids == set()


def test_the_loading_of_runs_is_on_an_api_page(site):
    ids = read(site / "api" / "inference.html").ids
    assert {
        "graphzoo.inference.loading.load",
        "graphzoo.inference.model.KGModel.predict",
        "graphzoo.inference.link_model.LinkModel.score",
        "graphzoo.inference.node_model.NodeModel.embed",
    } <= ids


def squeeze(text):
    """Remove white space and backquotes, in which a page and its source differ."""
    return re.sub(r"[\s`]", "", text)


def test_the_reference_page_agrees_with_the_program(site, hooks):
    text = (site / "reference.html").read_text(encoding="utf-8")
    squeezed = squeeze(html.unescape(re.sub(r"<[^>]+>", "", text)))
    for name, meaning in COMMANDS.items():
        assert squeeze(f"graphzoo {name} {meaning}") in squeezed
    for name, meaning in (OPTIONS | FLAGS).items():
        assert squeeze(f"--{name}{meaning}") in squeezed
    for name in COMMANDS:
        if name not in ("validate", "test"):
            assert squeeze(hooks["reference"].help_of(name)) in squeezed, name
    for option in ("num_random_features", "adversarial_temperature", "micro_batch_size", "projection_init"):
        assert option in text


def test_every_option_has_a_description(hooks):
    """If the parser cannot read a docstring, all its options are without help."""
    from graphzoo import datamodules, tasks

    reference = hooks["reference"]
    classes = [getattr(tasks, name) for name in tasks.__all__ if name != "Task"]
    classes += [getattr(datamodules, name) for name in datamodules.__all__]
    classes += [reference.pydoc.locate(path) for path in reference._encoders()]
    silent = [(cls.__name__, row[0]) for cls in classes for row in reference.options_of(cls) if not row[3]]
    assert silent == []


def test_docstrings_become_markdown(hooks):
    convert = hooks["docstrings"].to_markdown
    text = "Features :math:`\\phi(x)`.\n\n.. math:: a = b,\n    \\quad c\n\nMore.\n\n>>> f(1)\n2\n>>> g()\n"
    made = convert(text)
    assert "Features $\\phi(x)$." in made and "$$a = b, \\quad c$$" in made
    assert "```pycon\n>>> f(1)\n2\n>>> g()\n```" in made
    assert convert("Plain text.\n\n    kept") == "Plain text.\n\n    kept"


def names_defined(source):
    """Functions, classes and methods (`Class.method`) that a source defines."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
    return found


@pytest.mark.parametrize("page", ENCODERS)
def test_equations_are_where_the_page_says(page):
    """Each row of the table names a file, and the functions or classes with the equation."""
    section = (
        (DOCS / f"{page}.md")
        .read_text()
        .partition("## Where the equations are in the code\n")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| [^|]+ \| `([^`|]+)` \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(rows) >= 7
    for file, cell in rows:
        assert (ROOT / file).is_file(), file
        names = re.findall(r"`([\w.]+)`", cell)
        assert names and set(names) <= names_defined((ROOT / file).read_text()), f"{file}: {names}"


def test_own_encoder_fits_into_sixty_lines():
    page = (DOCS / "own-encoder.md").read_text()
    source = re.search(r"title=\"spreading.py\"\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    assert len(source.splitlines()) <= 60
    assert max(map(len, source.splitlines())) <= 110
    assert {"Spreading.__init__", "Spreading.forward"} <= names_defined(source)  # test_docs.py runs it
