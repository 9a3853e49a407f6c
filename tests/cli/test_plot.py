"""`graphzoo plot`: its files, and its messages for mistakes."""

import subprocess
import sys

import pytest
from helpers.report_runs import write_evaluation, write_run

from graphzoo.cli import main


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_evaluation(write_run(tmp_path / "runs" / "galit-cora" / "one"))


def plot(capsys, *words):
    status = main(["plot", *map(str, words)])
    return status, capsys.readouterr().err


def test_the_page_is_written_once(run, tmp_path, capsys):
    status, message = plot(capsys, run, "--no-model")
    assert status == 0 and "report.html" in message and "pictures" in message
    first = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report.html").write_bytes(b"mine")
    status, message = plot(capsys, run, "--no-model")
    assert status == 2 and "report.html exists already" in message and "--overwrite" in message
    assert (tmp_path / "report.html").read_bytes() == b"mine"
    assert plot(capsys, run, "--no-model", "--overwrite")[0] == 0
    assert (tmp_path / "report.html").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_file_per_picture(run, tmp_path, capsys, form, begin):
    status, message = plot(capsys, run, "--no-model", "--format", form, "--out", "some")
    files = sorted((tmp_path / "some").iterdir())
    assert status == 0 and f"{len(files)} pictures" in message
    names = {path.stem for path in files}
    assert {"val-acc", "train-loss", "g1-confusion", "g1-embedding", "g1-relations"} <= names
    assert all(path.suffix == f".{form}" and path.read_bytes().startswith(begin) for path in files)
    status, message = plot(capsys, run, "--no-model", "--format", form, "--out", "some")
    assert status == 2 and "exists already" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--overwite"], "Did you mean: --overwrite?"),
        (["RUN", "--format", "htlm"], "Did you mean: html?"),
        (["RUN", "--format", "pdf"], "--format is one of html, png, svg, got 'pdf'"),
        (["RUN", "--out", "page.txt"], "--out page.txt.html"),
        (["RUN", "--out", "curves.png"], "--format png --out curves"),
        (["RUN", "--out", "runs"], "a page ends in .html"),
        (["RUN", "--out", "folder.html"], "folder.html is a folder"),
        (["RUN", "--format", "png", "--out", "file"], "file is a file"),
        (["runs/galit-cora/two"], "Did you mean: runs/galit-cora/one?"),
        (["runs/galit"], "runs/galit: no such file or folder"),
        (["nothing"], "nothing holds no run"),
        ([], "plot needs a run: graphzoo plot RUN"),
        (["RUN", "--fact", "a", "b"], "expected 3 arguments"),
        (["RUN", "--fact", "a", "b", "c", "--no-model"], "--fact asks the model"),
    ],
)
def test_mistakes_are_answered_with_their_remedy(run, tmp_path, capsys, words, message):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("")
    status, text = plot(capsys, *(str(run) if word == "RUN" else word for word in words))
    assert status == 2 and message in text and len(text.splitlines()) <= 6
    assert not (tmp_path / "report.html").exists()


def test_a_missing_run_is_reported_before_an_existing_page(run, tmp_path, capsys):
    (tmp_path / "report.html").write_text("mine")
    status, message = plot(capsys, run, "runs/galit-cora/two")
    assert status == 2 and "runs/galit-cora/two: no such file" in message and "exists already" not in message


def test_a_damaged_evaluation_is_named_on_the_page(run, tmp_path, capsys):
    """A damaged table does not affect the rest of the page."""
    table = run / "evaluation" / "test" / "classes.csv"
    table.write_text(table.read_text().replace("0.5", "0.6"))
    assert plot(capsys, run, "--no-model")[0] == 0
    text = (tmp_path / "report.html").read_text()
    assert "classes.csv is damaged" in text and "graphzoo test" in text
    assert "Validation accuracy" in text and "80.00" in text
    assert "Confusion" in text, "the other tables"
    (run / "evaluation" / "test" / "index.json").unlink()
    assert plot(capsys, run, "--no-model", "--overwrite")[0] == 0
    text = (tmp_path / "report.html").read_text()
    assert "is not an evaluation: index.json is missing" in text and "80.00" in text


def test_another_evaluation_replaces_a_damaged_one(run, tmp_path, capsys):
    other = write_evaluation(write_run(run.parent / "two", seed=1))
    (run / "evaluation" / "test" / "hits.csv").unlink()
    assert plot(capsys, run, other, "--no-model")[0] == 0
    text = (tmp_path / "report.html").read_text()
    assert "hits.csv is damaged" in text and "Of one of the runs: seed 1." in text and "Confusion" in text


def test_of_damaged_evaluations_the_least_damaged_is_shown(run, tmp_path, capsys):
    other = write_evaluation(write_run(run.parent / "two", seed=1))
    for path in (run / "hits.csv", run / "confusion.csv", other / "hits.csv"):
        (path.parent / "evaluation" / "test" / path.name).unlink()
    assert plot(capsys, run, other, "--no-model")[0] == 0
    text = (tmp_path / "report.html").read_text()
    assert (
        text.count(".csv is damaged") == 3 and "Of one of the runs: seed 1." in text and "Confusion" in text
    )


def test_without_a_checkpoint_the_page_says_so(run, tmp_path, capsys):
    assert plot(capsys, run)[0] == 0
    assert "the run has no checkpoint" in (tmp_path / "report.html").read_text()


def test_a_folder_without_write_permission_is_refused(run, capsys, monkeypatch):
    import os

    monkeypatch.setattr(os, "access", lambda path, mode: False)
    status, message = plot(capsys, run, "--out", "there/report.html")
    assert status == 2 and "not writable" in message


def test_help_fits_a_screen_and_imports_nothing_heavy():
    code = (
        "import sys; from graphzoo.cli import main\n"
        "try: main(['plot', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'lightning', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    assert "--no-model" in done.stdout and "--fact" in done.stdout
