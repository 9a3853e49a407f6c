"""Every command takes a run as a positional argument or after `--ckpt_path`."""

import json
from pathlib import Path

import pytest

from graphzoo.cli.run_word import folder_of_run, run_as_option
from graphzoo.errors import UsageError

QUERY = "head\trelation\ttail\nentity0\tnext\t?\n"


def made(command, run, number):
    """Arguments of a command that uses a run, and the file that it writes."""
    folder = Path(f"made-{number}")
    words = {
        "predict": (["--queries", "queries.tsv", "--out", f"{folder}.csv"], Path(f"{folder}.csv")),
        "export": (["--out", str(folder)], folder / "model.safetensors"),
        "plot": (["--out", f"{folder}.html", "--no-model"], Path(f"{folder}.html")),
        "fit": (["--run_dir", str(folder), "--quiet", "--trainer.max_epochs=3"], folder / "results.json"),
        "test": (["--run_dir", str(folder), "--quiet"], folder / "results.json"),
        "validate": (["--run_dir", str(folder), "--quiet"], folder / "results.json"),
    }
    return words[command]


@pytest.mark.parametrize("command", ["fit", "predict", "export", "plot", "test", "validate"])
def test_a_run_is_a_word_or_an_option(cli, trained, command):
    Path("queries.tsv").write_text(QUERY)
    used = trained / "checkpoints" / ("last.ckpt" if command == "fit" else "best.ckpt")
    forms = [[trained], ["--ckpt_path", trained], [f"--ckpt_path={used}"]]
    files = []
    for number, form in enumerate(forms):
        words, file = made(command, trained, number)
        result = cli(command, *form, *words)
        assert result.status == 0, result.err
        files.append(file)
    if file.suffix == ".csv":
        assert len({path.read_text() for path in files}) == 1
    if file.suffix == ".json":
        assert len({json.dumps(json.loads(path.read_text())["metrics"]) for path in files}) == 1
    words, _ = made(command, trained, 9)
    twice = cli(command, trained, "--ckpt_path", "elsewhere", *words)
    takes_several = command == "plot"
    assert twice.status == 2
    assert ("elsewhere" in twice.err) if takes_several else (f"{command} takes one run, got" in twice.err)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export --out a", "the following arguments are required: RUN\n"),
        ("export best", "the following arguments are required: --out\n"),
        ("plot", "plot needs a run: graphzoo plot RUN"),
        ("predict --queries q.tsv", "give either RUN, a trained model, or --model NAME"),
        ("predict nowhere --queries q.tsv", "nowhere: there is no such file"),
        ("test nowhere", "test takes options or a run, and there is no run 'nowhere'"),
    ],
)
def test_a_missing_run_is_reported(cli, command, message):
    Path("q.tsv").write_text(QUERY)
    result = cli(*command.split())
    assert result.status == 2 and message in result.err, result.err


def test_the_newest_run_has_a_name(cli, fit):
    fit(epochs=1)
    for command in ("test", "validate"):
        assert cli(command, "best", "--quiet").status == 0
    assert cli("plot", "best", "--no-model").status == 0 and Path("report.html").is_file()


def test_arguments_that_name_no_run_stay(workplace):
    assert run_as_option("test", ["--model", "gcn"]) == ["--model", "gcn"]
    assert run_as_option("test", ["nowhere", "--x"]) == ["nowhere", "--x"]
    assert run_as_option("test", ["last", "--x"]) == ["--ckpt_path=last", "--x"]
    assert run_as_option("test", []) == []


def test_a_lone_checkpoint_has_no_pictures(workplace):
    Path("lone.ckpt").touch()
    with pytest.raises(UsageError, match="lies in no run directory"):
        folder_of_run("lone.ckpt")
    assert folder_of_run("some/folder") == Path("some/folder")
