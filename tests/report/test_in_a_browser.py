"""Reports of real runs of all tasks in a browser: errors, pixels, font sizes and widths."""

import html
import json
import re
import subprocess

import numpy as np
import pytest
from helpers.report_runs import write_evaluation, write_row, write_run

from graphzoo.report import build_report, find_records, group_records, to_html
from graphzoo.report.style import THEME

WIDTHS, HEIGHT = (390, 1280), 2400
# Script in a measured page, which reports sizes and overlaps of its elements.
MEASURE = """
<script>addEventListener("load", () => {
  const seen = element => element.getClientRects().length > 0;
  const all = names => [...document.querySelectorAll(names)].filter(seen);
  const letters = all("svg text").map(text => {
    const picture = text.ownerSVGElement;
    const a = picture.getBoundingClientRect(), b = text.getBoundingClientRect();
    const scale = a.width / picture.viewBox.baseVal.width;
    return {
      size: parseFloat(getComputedStyle(text).fontSize) * scale, text: text.textContent,
      out: Math.max(a.left - b.left, b.right - a.right, a.top - b.top, b.bottom - a.bottom),
    };
  });
  const over = [];
  for (const picture of all("svg")) {
    const flat = [...picture.querySelectorAll("text")].filter(text => {
      const turned = /rotate\\(-?[1-9]/.test(text.getAttribute("transform") || "");
      return seen(text) && !turned && text.textContent.trim();
    }).map(text => [text.textContent, text.getBoundingClientRect()]);
    flat.forEach(([one, a], place) => flat.slice(place + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > a.height / 3) over.push(one + " | " + other);
    }));
  }
  const words = all("p, td, th, figcaption, code, li, caption");
  const loose = all("body *").filter(element => !element.closest(".table, pre, svg"));
  parent.postMessage({
    name: document.title, page: document.documentElement.scrollWidth, screen: innerWidth,
    wide: loose.filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.tagName),
    smallest: Math.min(...letters.map(letter => letter.size)),
    words: Math.min(...words.map(element => parseFloat(getComputedStyle(element).fontSize))),
    over, outside: letters.filter(letter => letter.out > 3).map(letter => letter.text),
    pictures: document.querySelectorAll("svg").length,
  }, "*");
});</script>
"""
COLLECT = """
<pre id="found"></pre><script>
const found = []; addEventListener("message", event => {
  found.push(event.data); document.getElementById("found").textContent = JSON.stringify(found);
});</script>
"""


def open_page(chromium, folder, page, *options):
    command = [
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr", "--v=0", "--virtual-time-budget=8000",
        f"--user-data-dir={folder / 'profile'}", *options, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def console(done):
    return re.findall(r"^.*CONSOLE.*$", done.stderr, re.MULTILINE)


@pytest.fixture(scope="module")
def reports(real_runs, tmp_path_factory):
    """A page for each task, and one of several settings with published scores."""
    folder = tmp_path_factory.mktemp("reports")
    # The real runs have no published scores, and short names.
    wide = {"model.encoder.num_layers": 12, "model.encoder.hidden_channels": 1024}
    runs = tmp_path_factory.mktemp("written")
    rows = [
        write_evaluation(write_row(runs / "row") / "seed-0").parent,
        write_run(runs / "wide", changed=wide, test=0.7),
        write_run(runs / "other", data="citeseer", recipe="galit/citeseer", test=0.6),
        write_run(runs / "rival", model="nodeformer", recipe="nodeformer/cora", test=0.8215),
    ]
    chosen = {
        "kg": [real_runs.kg],
        "nodes": [real_runs.nodeformer, real_runs.galit],
        "links": [real_runs.shallow, real_runs.deep],
        "paper": rows,
    }
    for name, runs in chosen.items():
        text = to_html(build_report(group_records(find_records(runs))))
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder, list(chosen)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_have_no_errors_and_show_letters_and_curves(chromium, reports, tmp_path, dark):
    folder, names = reports
    frames = "".join(f'<iframe src="{name}.html"></iframe>' for name in names)
    style = f"<style>body{{margin:0}}iframe{{border:0;display:block;width:1280px;height:{HEIGHT}px}}</style>"
    page = folder / "all.html"
    page.write_text(f"<!doctype html>{style}{frames}")
    picture = tmp_path / "page.png"
    size = f"--window-size=1280,{HEIGHT * len(names)}"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    done = open_page(chromium, tmp_path, page, size, scheme, f"--screenshot={picture}")
    assert picture.is_file(), done.stderr[-2000:]
    assert console(done) == []
    from PIL import Image

    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    curve = [int(THEME["c0"][dark][at : at + 2], 16) for at in (1, 3, 5)]
    # Each report has letters in contrast to the background, and curves in blue.
    for part in np.split(pixels[: HEIGHT * len(names)], len(names)):
        letters = (part.min(2) > 165).mean() if dark else (part.max(2) < 90).mean()
        drawn = (np.abs(part - curve).max(2) <= 5).sum()
        assert 0.002 < letters < 0.5 and drawn > 300, (letters, drawn)


def test_errors_of_a_page_are_found(chromium, tmp_path):
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><script>throw new Error('broken on purpose')</script>")
    done = open_page(chromium, tmp_path, page, "--dump-dom")
    assert any("broken on purpose" in line for line in console(done))


def test_letters_are_large_enough_and_nothing_overlaps_or_overflows(chromium, reports, tmp_path):
    folder, names = reports
    frames = ""
    for name in names:
        text = (folder / f"{name}.html").read_text(encoding="utf-8")
        measured = re.sub(r"<meta http-equiv=[^>]*>", "", text).replace("</body>", f"{MEASURE}</body>")
        (folder / f"{name}-measured.html").write_text(measured, encoding="utf-8")
        for width in WIDTHS:
            frames += f'<iframe width="{width}" height="900" src="{name}-measured.html"></iframe>'
    page = folder / "measured.html"
    page.write_text(f"<!doctype html>{COLLECT}{frames}")
    done = open_page(chromium, tmp_path, page, "--window-size=1400,1000", "--dump-dom")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1]))
    assert sorted(one["screen"] for one in found) == sorted([*WIDTHS] * len(names))
    for one in found:
        assert one["page"] <= one["screen"] and one["wide"] == [], one
        assert one["smallest"] >= 10 and one["words"] >= 13, one
        assert one["outside"] == [] and one["over"] == [] and one["pictures"] >= 8, one
