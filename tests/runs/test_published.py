"""Comparison of results with published ones."""

import json
import math

import pytest
from helpers.report_runs import write_run

from graphzoo.runs.average import write_row
from graphzoo.runs.published import compare, published_values
from graphzoo.runs.record import read_record
from graphzoo.runs.series import runs_of


@pytest.mark.parametrize("metric", ["mr", "test/rmse", "test/whole_graph/mr"])
def test_errors_are_compared_the_other_way_round_and_one_run_is_never_better(metric):
    assert compare(metric, 200.0, 100.0, None) == "above" and compare(metric, 50.0, 100.0, None) == "met"
    assert compare(metric, 50.0, 100.0, None, std=1.0, runs=3) == "below"


def test_nothing_published_and_no_mean_compare_with_nothing():
    assert compare("acc", 0.5, None, None) == compare("acc", math.nan, 0.5, 0.1) == ""


def test_an_error_below_1_is_not_treated_as_a_proportion():
    assert compare("rmse", 0.45, 0.44, None, tested=400) == "above"
    assert compare("acc", 0.45, 0.44, None, tested=400) == "met"


@pytest.mark.parametrize(
    ("model", "recipe", "data", "protocol", "compares"),
    [
        ("heuristic.cn", "citeseer-link", "citeseer-link", "original", True),
        ("heuristic.cn", "citeseer-link", "citeseer-link", "heart", False),
        ("heuristic.cn", "ogbl-ddi", "ogbl-ddi", "ogb", True),
        ("pencil", "citeseer-link", "citeseer-link", "original", True),
        ("pencil", "citeseer-link-heart", "citeseer-link", "heart", True),
        ("pencil", "citeseer-link-heart", "citeseer-link", "heart-ours", False),
        ("knowformer", "citeseer-link", "citeseer-link", "nbfnet", True),
        ("knowformer", "citeseer-link", "citeseer-link", "vgae", False),
        ("galit", "cora", "cora", "geom-gcn", True),
    ],
)
def test_published_scores_of_links_hold_for_their_protocol_only(
    tmp_path, model, recipe, data, protocol, compares
):
    names = {"model": model, "data": data, "recipe": f"{model}/{recipe}"}
    published = published_values(**names)
    metric = next(iter(published))
    (run,) = runs_of("0", "")
    write_run(tmp_path / run.folder, **names, metric=metric.removeprefix("test/"))
    path = tmp_path / run.folder / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split": {"name": protocol}}))
    assert read_record(path.parent).published() == (published if compares else {})
    for figures in (None, published):
        row = write_row(tmp_path, [run], **names, published=figures)
        assert row["metrics"][metric]["paper"] == (published[metric].value if compares else None)
