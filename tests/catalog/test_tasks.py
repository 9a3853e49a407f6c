"""The table of tasks."""

import pytest

from graphzoo import inference
from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.tasks import TASKS, function_of, usual_task
from graphzoo.cli.predict import predict_parser


@pytest.mark.parametrize("row", TASKS.values(), ids=list(TASKS))
def test_the_names_in_a_row_exist(row):
    assert isinstance(function_of(row.class_path), type)
    for path in filter(None, (*row.tables, row.pictures, row.program, row.facts)):
        assert callable(function_of(path))
    if row.inference:
        assert callable(getattr(inference, row.inference).of_checkpoint)
        assert all(row.tables) and row.pictures and row.facts, "its models answer in every command"
    if row.monitor == "auto":
        assert callable(function_of(row.class_path).monitor_of)
    options = {action.dest for action in predict_parser()._actions}
    assert set(row.options) <= options
    models = {preset.name for preset in list_presets("model")}
    assert {name.partition(",")[0] for name in row.compared} <= models


def test_every_encoder_has_a_usual_task():
    kinds = {preset.header["kind"] for preset in list_presets("model")} - {"heuristic"}
    assert {kind: usual_task(kind) for kind in kinds} == {
        "query": "kg-completion",
        "node": "node-classification",
        "pair": "link-prediction",
    }


def test_presets_tell_which_models_are_transformers():
    names = {preset.name for preset in list_presets("model") if preset.header.get("family") == "transformer"}
    assert {"galit", "pencil", "knowformer-any"} <= names and not names & {"gcn", "mlp", "heuristic.cn"}
