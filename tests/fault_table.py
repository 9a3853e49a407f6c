"""The list of faults in docs/reliability.md, made from the tests that carry `@pytest.mark.fault`.

    python -m tests.fault_table            write the list into the page
    python -m tests.fault_table --check    say whether the page is up to date
    python -m tests.fault_table --tests    print each fault with its test

A mark names the fault and what happens: `@pytest.mark.fault("a checkpoint cut short", "named, and a whole one
beside it")`. So each fault in the list is shown by a test.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
# Folder of a test -> heading of the faults that it shows.
AREAS = {
    "cli": "The command line, presets and runs",
    "system": "The command line, presets and runs",
    "datasets": "Data files, downloads and caches",
    "datamodules": "Data files, downloads and caches",
    "tasks": "Training",
    "metrics": "Training",
    "inference": "Checkpoints and prediction",
    "checkpoints": "Checkpoints and prediction",
}


def rows_of(items: Iterable[pytest.Item]) -> list[tuple[str, str, str]]:
    """Faults as (fault, what happens, test), ordered by test file and line.

    Args:
        items: Collected tests; those without a mark are skipped.

    Raises:
        ValueError: for a mark that is not two texts, or a fault that two tests name.
    """
    found: dict[str, tuple[str, str, list[pytest.Item]]] = {}
    for item in items:
        for mark in item.iter_markers("fault"):
            if len(mark.args) != 2 or mark.kwargs or not all(_is_cell(text) for text in mark.args):
                raise ValueError(f"{item.nodeid}: fault takes two texts of one line, without |: {mark.args}")
            fault, happens = mark.args
            same = found.setdefault(fault, (fault, happens, []))
            if same[1] != happens or (same[2] and _function(same[2][0]) != _function(item)):
                raise ValueError(f"{item.nodeid}: {fault!r} is named already by {same[2][0].nodeid}")
            same[2].append(item)
    # The order of collection would not do: it puts long tests first.
    ordered = sorted(
        found.values(), key=lambda row: min((*test.location[:2], test.nodeid) for test in row[2])
    )
    return [(fault, happens, _test(tests)) for fault, happens, tests in ordered]


def table(rows: list[tuple[str, str, str]]) -> str:
    """The rows as Markdown, with a list for each heading."""
    parts = [f"{len(rows)} faults."]
    areas = list(dict.fromkeys([*AREAS.values(), "Elsewhere"]))
    for area in areas:
        own = [row for row in rows if AREAS.get(row[2].split("/")[1], "Elsewhere") == area]
        if own:
            lines = [line for fault, happens, _ in own for line in _wrapped(f"- **{fault}**: {happens}")]
            parts.append("\n".join([f"### {area}", "", *lines]))
    return "\n\n".join(parts)


def page_with(rows: list[tuple[str, str, str]], text: str) -> str:
    """The text of the page, with the list of these rows between its two comments."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has lost its marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def collect() -> list[pytest.Item]:
    """Collect all tests of the repository, also those that need the network, without running them."""

    class Collected:
        items: list[pytest.Item] = []

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.items = list(session.items)

    plugin = Collected()
    options = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "", "--rootdir", str(ROOT)]
    # pytest prints every test, which matters only if the collection fails.
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*options, str(ROOT / "tests")], plugins=[plugin])
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests could not be collected ({status!r}):\n{said.getvalue()[-2000:]}")
    return plugin.items


def _is_cell(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and "\n" not in text and "|" not in text


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 119, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _test(items: list[pytest.Item]) -> str:
    """Id of the test; if several parameter sets have the mark, of its function."""
    return items[0].nodeid if len(items) == 1 and _is_cell(items[0].nodeid) else _function(items[0])


def main(words: list[str] | None = None) -> int:
    """Write the list into the page, compare it with the page, or print its tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault_table", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only; status 1 when the page is old")
    parser.add_argument("--tests", action="store_true", help="print each fault with its test")
    arguments = parser.parse_args(words)
    rows = rows_of(collect())
    if arguments.tests:
        print("\n".join(f"{fault}: {test}" for fault, _, test in rows))
        return 0
    old = PAGE.read_text(encoding="utf-8")
    new = page_with(rows, old)
    if not arguments.check:
        PAGE.write_text(new, encoding="utf-8")
        print(f"{len(rows)} faults in {PAGE.relative_to(ROOT)}")
    elif new != old:
        changed = difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "tests", n=0, lineterm="")
        print("\n".join(changed))
        print("docs/reliability.md is not what the tests say; run: python -m tests.fault_table")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
