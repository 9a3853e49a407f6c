"""The time of runs, in results.json and in the headers of recipes."""

import json

import pytest

from graphzoo.catalog.presets import list_presets
from graphzoo.runs.times import claimed_seconds, taken_seconds


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        ("mrr=0.9748±0.0031, seeds 0-2; one core shared with other jobs, 629 to 1517 seconds a run", 1073.0),
        ("acc=0.5; one shared core, 40 to 52 minutes of training a seed", 46 * 60.0),
        ("acc=0.5, seed 0; 0.74 hours on one of two shared cores", 0.74 * 3600),
        ("acc=0.5; one core shared with other jobs, 196 to 317 seconds a run, one 1343", 256.5),
        ("after 200 steps MRR 0.500; 34 s a step on two cores", None),
        ("trained for 3 hours; deterministic", None),
        ("not run yet", None),
        ("", None),
    ],
)
def test_the_time_of_a_run_is_read_from_a_recipe(measured, seconds):
    assert claimed_seconds(measured) == (None if seconds is None else pytest.approx(seconds))


def test_most_measured_recipes_state_the_time_of_a_run():
    measured = [preset.header.get("measured", "") for preset in list_presets("recipe")]
    with_time = [text for text in measured if claimed_seconds(text)]
    assert len(with_time) > 60, "the form of the headers has changed"


def test_the_time_of_a_run_is_read_from_its_results(tmp_path):
    assert taken_seconds(tmp_path) is None
    for content, seconds in [
        ({"seconds": 5.0, "fit_seconds": 60.0}, 60.0),
        ({"seconds": 5.0, "fit_seconds": None}, 5.0),
        ({}, None),
        ([], None),
    ]:
        (tmp_path / "results.json").write_text(json.dumps(content))
        assert taken_seconds(tmp_path) == seconds
    (tmp_path / "results.json").write_text("{")
    assert taken_seconds(tmp_path) is None
