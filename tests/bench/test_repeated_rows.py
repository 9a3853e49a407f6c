import math

import pytest

from benchmarks.common import RESULTS
from benchmarks.repeated_rows import first_run, is_of_a_gpu, line_of, main, seconds
from graphzoo.cli.reproduce import reproduce_parser
from graphzoo.runs.row import read_row

ROWS = {path.parent.name: read_row(path) for path in (RESULTS / "rows").glob("*/row.json")}


@pytest.mark.parametrize(
    ("command", "splits", "words"),
    [
        ("galit cora --seeds 3-4", None, ["galit", "cora"]),
        ("mlp actor --seeds 3,4 --splits=2-4", [2, 3, 4], ["mlp", "actor"]),
        ("knowformer umls --seeds 3,4 --recipe 'a b'", None, ["knowformer", "umls"]),
    ],
)
def test_the_first_run_of_a_row(command, splits, words):
    row = {"command": f"graphzoo reproduce {command}", "seeds": [3, 4], "splits": splits}
    made = reproduce_parser().parse_known_args(first_run(row)[1:])[0]
    assert [made.model, made.data] == words and made.in_process
    assert made.seeds == "3" and made.splits == ("2" if splits else "")
    assert made.recipe == ("a b" if "a b" in command else None)


def test_an_unknown_row_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["repeated_rows", "--rows", "galit-corra"])
    with pytest.raises(SystemExit):
        main()
    assert "'galit-corra': galit-cora" in capsys.readouterr().err


def test_a_row_compared_with_itself_has_equal_figures():
    for name, row in ROWS.items():
        if is_of_a_gpu(row):
            continue
        line = line_of(name, row, row)
        assert line["kept"] == line["repeated"] and line["epoch kept"] == line["epoch repeated"]
        assert line["validation kept"] == line["validation repeated"]


@pytest.mark.parametrize(
    ("num_parameters", "fit_seconds", "expected"), [(5, 2.0, 2.0), (5, None, math.inf), (0, None, 0.0)]
)
def test_a_row_without_its_time_is_the_longest(num_parameters, fit_seconds, expected):
    """A heuristic, without parameters, is not trained."""
    run = {"num_parameters": num_parameters, "fit_seconds": fit_seconds}
    assert seconds({"runs": [run]}) == expected


def test_rows_of_a_gpu_are_recognised():
    assert [name for name, row in ROWS.items() if is_of_a_gpu(row)] == ["pencil-citeseer-link"]
