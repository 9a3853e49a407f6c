"""Standard output may be closed, full, no longer read, or ASCII only; the current folder may be deleted."""

import json
import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from helpers.warm_python import python

pytestmark = pytest.mark.usefixtures("workplace")
REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = "-P -c 'import sys; from graphzoo.cli import main; sys.exit(main())'"


@pytest.fixture
def shell():
    """Run a line of bash: `shell("graphzoo list > file")` returns the completed process."""

    def run(line, interpreter=sys.executable, **environment):
        return subprocess.run(
            ["bash", "-c", line.replace("graphzoo", f"{shlex.quote(interpreter)} {COMMAND}", 1)],
            capture_output=True,
            # buffered, so that an error when the buffer is flushed is tested as well
            env={**os.environ, "PYTHONUNBUFFERED": "", "PYTHONPATH": str(REPOSITORY), **environment},
            timeout=120,
        )

    return run


def lines(result):
    assert b"Traceback" not in result.stderr and b"Exception ignored" not in result.stderr, result.stderr
    return result.stderr.decode().splitlines()


@pytest.mark.fault(
    "standard output goes to a full disk", "status 1 and one line; Python adds no second message"
)
def test_a_full_disk_behind_standard_output(shell):
    result = shell("graphzoo list models > /dev/full")
    assert result.returncode == 1
    assert lines(result)[0] == "graphzoo: the output: No space left on device"


@pytest.mark.fault(
    "standard output of a training goes to a full disk",
    ("status 1; the message names standard output, not a file of the run, and says how to resume"),
)
@pytest.mark.parametrize("more", ["", "--dry-run", "--print_config"])
def test_a_full_disk_behind_a_training(shell, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    names = "--model knowformer --data umls --recipe umls-demo --trainer smoke --run_dir run"
    result = shell(f"graphzoo fit {names} {more} > /dev/full", python())
    assert result.returncode == 1
    said = [line for line in lines(result) if not line.startswith("graphzoo fit: ")]
    assert said[0] == "graphzoo: the output: No space left on device", said
    assert len(said) == 2 and ("graphzoo fit --config run/config.yaml" in said[1]) == (not more), said


@pytest.mark.fault("standard output is closed", "status 1, because the answer is lost")
def test_a_closed_standard_output(shell):
    result = shell("graphzoo list models >&-")
    assert result.returncode == 1
    assert lines(result) == ["graphzoo: standard output is closed: the answer could not be written"]
    assert shell("graphzoo list nonsense 2>&-").returncode == 2


@pytest.mark.fault("standard error cannot be written to", "only the status shows the failure")
def test_standard_error_cannot_be_written(shell):
    for line, status in (("graphzoo list nonsense", 2), ("graphzoo list models >&-", 1)):
        assert shell(f"{line} 2> /dev/full").returncode == status


@pytest.mark.fault("the reader of a pipe leaves early", "no message, status 0")
def test_a_reader_that_leaves_early(shell):
    result = shell("set -o pipefail; graphzoo list | head -1")
    assert result.returncode == 0 and not lines(result)


@pytest.mark.fault("an ASCII locale", "other characters are shown as escapes; no command fails")
def test_an_ascii_locale(shell, tmp_path):
    metrics = {"test/acc": {"mean": 0.5, "std": 0.1, "values": [0.5]}}
    row = {"model": "m\u00fcller", "data": "d", "metrics": metrics}
    (tmp_path / "row.json").write_text(json.dumps(row))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    for form in ("table", "markdown", "csv"):
        result = shell(f"graphzoo results row.json --format={form}", **ascii_only)
        assert result.returncode == 0 and not lines(result), result.stderr
        assert rb"m\xfcller" in result.stdout, result.stdout


@pytest.mark.fault("the current folder was deleted", "a message says so; status 2")
@pytest.mark.parametrize(
    "command", ["results", "fit --model=knowformer --data=umls", "predict --ckpt_path=x"]
)
def test_a_deleted_folder(shell, command):
    result = shell(f"mkdir gone && cd gone && rmdir ../gone && graphzoo {command}")
    assert result.returncode == 2
    assert lines(result) == ["graphzoo: the current folder no longer exists", "Go to another one: cd DIR"]


LONG = "x" * 300


@pytest.mark.fault(
    "a path that is too long for the system", "status 2, with the reason and both ends of the path"
)
@pytest.mark.parametrize(
    "words",
    [
        ["results", LONG],
        ["plot", LONG],
        ["plot", "run", "--out", f"{LONG}.html"],
        ["export", LONG, "--out", "there"],
        ["predict", "--ckpt_path", "RUN", "--queries", LONG],
        ["predict", "--ckpt_path", LONG, "--queries", "q"],
        ["fit", "--model=knowformer", "--data=kg", f"--data.path={LONG}"],
        ["fit", "--model=knowformer", "--data=umls", f"--run_dir={LONG}"],
        ["fit", "--ckpt_path", LONG],
        ["fit", "--config", LONG],
        ["reproduce", "knowformer", "umls", "--out", LONG],
        ["search", "nodeformer", "cora", "--out", LONG],
    ],
    ids=lambda words: " ".join(words)[:40].replace(LONG[:10], ""),
)
def test_paths_that_are_too_long(cli, words):
    Path("q").write_text("a\tb\t?\n")
    Path("run").mkdir()
    Path("run/results.json").write_text('{"metrics": {"test/acc": 0.5}}')
    result = cli(*words)
    assert result.status == 2, result
    assert "x" * 50 in result.err and len(result.err.splitlines()) <= 6


@pytest.mark.fault("an unexpected error", "one line with its type; --debug shows the traceback")
@pytest.mark.parametrize("command", ["results", "plot run", "list", "doctor", "export x", "completion bash"])
def test_an_unexpected_error(cli, monkeypatch, command):
    name, *rest = command.split()

    def broken(rest):
        assert "--debug" not in rest
        raise LookupError("broken on \x1b[2J purpose")

    room = {"list": "lists"}.get(name, name)
    monkeypatch.setattr(import_module(f"graphzoo.cli.{room}"), f"{name}_main", broken)
    result = cli(name, *rest)
    assert result.status == 1
    assert result.err.splitlines() == [
        r"graphzoo: LookupError: broken on \x1b[2J purpose",
        "--debug shows the traceback",
    ]
    with pytest.raises(LookupError):
        cli(name, *rest, "--debug")
