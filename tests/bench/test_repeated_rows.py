import pytest

from benchmarks.common import RESULTS
from benchmarks.repeated_rows import first_run, is_of_a_gpu, line_of, seconds
from graphzoo.runs.row import read_row

ROWS = {path.parent.name: read_row(path) for path in (RESULTS / "rows").glob("*/row.json")}


@pytest.mark.parametrize(
    ("command", "splits", "words"),
    [
        ("galit cora --seeds 3-9", None, ["galit", "cora", "--seeds", "3"]),
        ("mlp actor --splits=2-4", [2, 3, 4], ["mlp", "actor", "--seeds", "3", "--splits", "2"]),
        ("knowformer umls --recipe 'a b'", None, ["knowformer", "umls", "--recipe", "a b", "--seeds", "3"]),
    ],
)
def test_the_first_run_of_a_row(command, splits, words):
    row = {"command": f"graphzoo reproduce {command}", "seeds": [3, 4], "splits": splits}
    assert first_run(row) == ["reproduce", *words, "--in-process"]


def test_a_row_that_repeats_itself():
    for name, row in ROWS.items():
        if is_of_a_gpu(row):
            continue
        line = line_of(name, row, row)
        assert line["kept"] == line["repeated"] and line["epoch kept"] == line["epoch repeated"]
        assert line["validation kept"] == line["validation repeated"] and seconds(row) >= 0


def test_rows_of_a_gpu_are_known():
    assert [name for name, row in ROWS.items() if is_of_a_gpu(row)] == ["pencil-citeseer-link"]
