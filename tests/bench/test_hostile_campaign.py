"""The table of hostile attempts in the docs agrees with the kept counts, and findings are detected."""

import csv
import os

import pytest

from benchmarks.hostile_campaign import BEGIN, END, PAGE, RESULTS, as_markdown, changed, count, listing


def test_the_page_shows_the_counts():
    with RESULTS.open(newline="") as file:
        table = list(csv.reader(file))[1:]
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == as_markdown(table), "run: python -m benchmarks.hostile_campaign --page"


def test_findings_are_counted():
    rows = [(0, "facts", "result"), (1, "facts", "hang"), (2, "facts", "refused"), (3, "names", "raw output")]
    assert count(rows) == [["facts", 3, 1, 1, 0, 0, 1], ["names", 1, 0, 0, 0, 0, 1]]


@pytest.mark.parametrize("change", ["content", "mode", "removed", "new", "link"])
def test_a_change_outside_the_allowed_paths_is_detected(tmp_path, change):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a").write_text("kept")
    (tmp_path / "cwd" / "out").mkdir(parents=True)
    os.mkfifo(tmp_path / "cwd" / "pipe")  # opening a pipe would block
    before = listing(tmp_path)
    (tmp_path / "cwd" / "out" / "b").write_text("may be")
    assert changed(before, listing(tmp_path), ["out"]) == []
    match change:
        case "content":
            (victim / "a").write_text("lost")
        case "mode":
            (victim / "a").chmod(0o600)
        case "removed":
            (victim / "a").unlink()
        case "new":
            (victim / "b").write_text("")
        case "link":
            (victim / "a").unlink()
            (victim / "a").symlink_to("b")
    assert len(changed(before, listing(tmp_path), ["out"])) == 1
