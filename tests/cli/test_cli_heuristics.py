"""Heuristic estimation from the command line: presets, recipes, refused models."""

import pytest

from graphzoo.catalog.presets import list_presets
from graphzoo.errors import UsageError
from graphzoo.training.plan import make_plan

BASELINES = [f"{kind}-pair{marked}" for kind in ("gcn", "gat", "sage") for marked in ("", "-id")]
SMALL = {
    "pencil": [
        "--model.encoder.hidden_channels=16",
        "--model.encoder.num_layers=1",
        "--model.encoder.num_heads=2",
        "--model.encoder.ffn_channels=16",
    ],
    **{model: ["--model.encoder.hidden_channels=16"] for model in BASELINES},
}
FEW = ["--data.num_neighbors=5", "--data.max_nodes=20", "--trainer.accelerator=cpu", "--logger=csv"]
RECIPES = [
    preset for preset in list_presets("recipe") if "heuristics" in preset.header.get("data", preset.name)
]


@pytest.fixture(scope="session")
def friends(tmp_path_factory):
    """A file of links: two rings of 15 nodes, each linked to the next three."""
    path = tmp_path_factory.mktemp("friends") / "friends.csv"
    lines = [f"{ring}{i},{ring}{(i + j) % 15}\n" for ring in "ab" for i in range(15) for j in (1, 2, 3)]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def estimate(cli, friends):
    def run(model, *arguments, data="citeseer-heuristics", status=0):
        own = ["--data", data, "--data.name=links", "--data.path", friends]
        result = cli("fit", "--model", model, *own, *SMALL[model], *FEW, *arguments)
        assert result.status == status, result.err
        return result

    return run


@pytest.mark.parametrize(
    "model, heuristic", [("pencil", "katz"), ("gcn-pair", "pagerank"), ("gat-pair-id", "spd")]
)
def test_a_heuristic_is_estimated_and_tested_again(estimate, cli, results, model, heuristic):
    result = estimate(
        model, "--model.heuristic", heuristic, "--trainer.max_epochs=3", "--run_dir=run", "--recipe=none"
    )
    found = results("run")
    assert set(found["metrics"]) == {"test/rmse"} and 0 < found["metrics"]["test/rmse"] < 10
    assert (
        "pairs" in result.out
        and "RMSE" in result.out
        and f"{found['metrics']['test/rmse']:.4f}" in result.out
    )
    assert cli("test", "--ckpt_path=run", "--run_dir=again").status == 0
    assert results("again")["metrics"] == found["metrics"]


def test_the_checkpoint_has_the_smallest_error(estimate, results):
    import csv

    estimate("gcn-pair", "--trainer.max_epochs=8", "--run_dir=run", "--model.lr=0.05")
    with open("run/metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row.get("val/rmse")]
    errors = {int(row["epoch"]): float(row["val/rmse"]) for row in rows}
    assert len(errors) == 8
    assert results("run")["best_epoch"] == min(errors, key=errors.get)
    assert len(set(errors.values())) > 1


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda preset: preset.name)
def test_recipe_runs_a_step(estimate, results, recipe):
    model, name = recipe.name.split("/")
    few = ["--trainer.max_epochs=1", "--trainer.check_val_every_n_epoch=1", "--run_dir=run"]
    estimate(model, "--recipe", name, *few, data=recipe.header.get("data", name))
    found = results("run")
    assert found["recipe"] == recipe.name and found["metrics"]["test/rmse"] > 0


def test_all_recipes_are_found():
    assert {preset.name for preset in RECIPES} == {
        *(f"{model}/citeseer-heuristics-cpu" for model in ["pencil", *BASELINES]),
        "pencil/citeseer-heuristics",
        "pencil/citeseer-katz",
        "pencil/citeseer-spd",
        "pencil/cora-heuristics",
    }


@pytest.mark.parametrize("model", ["galit", "gcn", "knowformer", "heuristic.cn"])
def test_encoders_of_the_whole_graph_are_refused(model):
    with pytest.raises(UsageError, match="only the subgraph around") as refused:
        make_plan("fit", ["--model", model, "--data", "citeseer-heuristics"])
    assert "gcn-pair" in str(refused.value) and len(str(refused.value).splitlines()) <= 6


def test_an_unknown_heuristic_is_refused(estimate):
    refused = estimate("gcn-pair", "--model.heuristic=jaccard", status=2)
    assert "jaccard" in refused.err and "katz" in refused.err
    assert len(refused.err.splitlines()) <= 6
