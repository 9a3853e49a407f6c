"""How results compare with published ones."""

import pytest

from graphzoo.runs.published import compare


@pytest.mark.parametrize("metric", ["mr", "test/rmse", "test/whole_graph/mr"])
def test_of_errors_one_run_is_never_better_and_a_worse_one_is_told(metric):
    assert compare(metric, 200.0, 100.0, None) == "above" and compare(metric, 50.0, 100.0, None) == "met"
    assert compare(metric, 50.0, 100.0, None, std=1.0, runs=3) == "below"


def test_an_error_between_0_and_1_is_no_proportion():
    assert compare("rmse", 0.45, 0.44, None, tested=400) == "above"
    assert compare("acc", 0.45, 0.44, None, tested=400) == "met"
