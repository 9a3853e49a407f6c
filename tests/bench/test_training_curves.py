"""`benchmarks.training_curves --join` adds runs to a kept row."""

import copy

import pytest

from benchmarks.common import RESULTS
from benchmarks.training_curves import join_rows
from graphzoo.errors import UsageError
from graphzoo.runs.results_file import write_results
from graphzoo.runs.row import read_row
from graphzoo.system.json_file import read_json

WHOLE = RESULTS / "rows" / "knowformer-wn18rr-v3-wn18rr-v3-inference" / "row.json"


def part(*seeds):
    """The kept row with the runs of these seeds only."""
    row = copy.deepcopy(read_json(WHOLE))
    row["seeds"] = list(seeds)
    row["command"] += f" --seeds {','.join(map(str, seeds))}"
    row["runs"] = [run for run in row["runs"] if run["seed"] in seeds]
    for figure in row["metrics"].values():
        figure["values"] = [figure["values"][seed] for seed in seeds]
        figure["mean"] = figure["std"] = None
    return row


@pytest.mark.parametrize(("kept", "added"), [([0], [1, 2]), ([1], [0, 2]), ([0, 2], [1])])
def test_parts_join_to_the_whole_row(kept, added):
    joined = join_rows(part(*kept), part(*added))
    assert joined == read_json(WHOLE)
    assert join_rows(part(*added), part(*kept)) == joined


def test_the_command_names_seeds_other_than_the_default():
    joined = join_rows(part(2), part(0))
    assert joined["command"].endswith("--recipe wn18rr-v3-inference --seeds 0,2")
    assert all(figure["std"] is not None for figure in joined["metrics"].values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config_hash": "0"}, "config_hash"),
        ({"data_fingerprint": "0"}, "data_fingerprint"),
        ({"versions": {"graphzoo": "0.0.9"}}, "versions: .* in the kept row, {'graphzoo': '0.0.9'} in the"),
        ({"tested": 7}, "tested: 1210 in the kept row, 7 in the added one"),
        ({"splits": [0, 1]}, "several splits"),
    ],
)
def test_rows_that_differ_are_refused(change, said):
    with pytest.raises(UsageError, match=said):
        join_rows(part(0), part(1, 2) | change)


def test_a_seed_in_both_rows_is_refused():
    with pytest.raises(UsageError, match="both rows have a run of seed 1"):
        join_rows(part(0, 1), part(1, 2))


def test_older_rows_may_lack_fields():
    newer_fields = {"tested", "evaluated", "negatives", "protocol", "data_name"}
    old = {key: value for key, value in part(0).items() if key not in newer_fields}
    assert join_rows(old, part(1, 2)) == read_json(WHOLE)
    with pytest.raises(UsageError, match="do not say their versions"):
        join_rows(part(0) | {"versions": None}, part(1, 2) | {"versions": None})


def test_machines_are_named_once():
    one, two = part(0) | {"machine": "A"}, part(1) | {"machine": "B"}
    assert join_rows(join_rows(one, two), part(2) | {"machine": "A"})["machine"] == "A and B"


def test_a_command_without_seeds_is_completed():
    added = part(0, 1, 2)
    for run in added["runs"]:
        run["seed"] += 3
    added["seeds"] = [3, 4, 5]
    added["command"] = read_json(WHOLE)["command"]
    assert join_rows(part(0), added)["command"].endswith("-inference --seeds 0,3,4,5")


def test_a_joined_row_can_be_read(tmp_path):
    write_results(tmp_path / "row.json", join_rows(part(0), part(1, 2)))
    assert read_row(tmp_path / "row.json")
