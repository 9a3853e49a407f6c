"""Names, presets, and commands that do not import torch."""

import json
import sys
from pathlib import Path

import pytest

from graphzoo.catalog.classes import is_trusted
from graphzoo.catalog.presets import Preset, find_preset, list_presets, read_header
from graphzoo.catalog.tasks import TASKS
from graphzoo.cli import lists
from graphzoo.errors import UsageError, nearest, shorten
from graphzoo.training.plan import make_plan

HEAVY = ("torch", "lightning", "numpy", "jsonargparse", "yaml", "rich", "pandas")


@pytest.fixture
def own_presets(workplace, monkeypatch):
    """A folder with presets of a node encoder, one of which has the name of a shipped preset."""
    root = workplace / "mine"
    (root / "model").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "model" / "nodeonly.yaml").write_text("# title: for nodes\n# kind: node\nmodel: {}\n")
    (root / "data" / "umls.yaml").write_text("# title: my own UMLS\n# task: kg-completion\ndata: {}\n")
    monkeypatch.setenv("GRAPHZOO_CONFIGS", str(root))
    return root


@pytest.mark.parametrize(
    "arguments, status",
    [
        (["list"], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["fit", "--help", "--model", "knowformer", "--data", "umls"], 0),
        (["fit", "--model", "knowfromer", "--data", "umls"], 2),
        (["fit", "--model", "nodeonly", "--data", "fb15k237"], 2),
    ],
)
def test_commands_that_do_not_import_large_packages(process, own_presets, arguments, status):
    done = process(*arguments, options=["-X", "importtime"])
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line
    }
    assert done.returncode == status
    assert "graphzoo" in imported
    # Help for names merges their settings, so it imports yaml.
    assert not imported & (set(HEAVY) - ({"yaml"} if "--help" in arguments[1:] else set()))


def test_help_shows_settings_of_a_given_model_and_data(cli):
    part = cli("fit", "--model", "knowformer", "--help")
    assert part.status == 0 and "settings are:" not in part.out
    Path("mine.yaml").write_bytes(b"# caf\xe9\ntrainer: {}\n")
    refused = cli("fit", "--config", "mine.yaml", "--help")
    assert refused.status == 2 and "mine.yaml is not UTF-8 text" in refused.err
    Path("mine.yaml").write_text("\ufeff# a comment\ntrainer:\n  max_epochs: 7\n")
    shown = cli("fit", "--model=gcn", "--data=cora", "--config", "mine.yaml", "--help").out
    assert "    max_epochs: 7" in shown and "a comment" not in shown


@pytest.mark.parametrize("flag", ["--override", "--no-test", "--dry-run"])
def test_flags_of_training_are_refused_elsewhere(cli, flag):
    for command in ("validate", "test"):
        result = cli(command, "--model", "gcn", "--data", "cora", flag)
        assert result.status == 2 and f"{flag} is an option of fit" in result.err


def test_list_names_every_preset(cli):
    shown = cli("list").out
    for kind in ("model", "data", "recipe", "trainer", "logger"):
        for preset in list_presets(kind):
            assert f"  {preset.name} " in shown
    assert "knowformer/umls " in shown and "paper: mrr=0.971" in shown


def test_list_shows_the_best_score_and_its_time(cli):
    """They come from the recipes, whose scores `test_figures.py` compares with the kept rows."""
    tables = json.loads(cli("list", "model", "data", "--json").out)
    rows = {kind: {row["name"]: row.get("best", "") for row in table} for kind, table in tables.items()}
    assert rows["data"]["umls"].startswith("knowformer: mrr=0.97") and "paper 0.971" in rows["data"]["umls"]
    assert "seconds a run" in rows["data"]["cora"] and rows["data"]["cora"].startswith("galit: acc=0.84")
    assert rows["data"]["fb15k237"].endswith("one of two cores, 1 to 1.4 hours")
    assert rows["data"]["citeseer-link"].startswith("pencil: mrr=")
    assert rows["model"]["pencil"].startswith("citeseer-link: mrr=") and not rows["data"]["kg"]
    assert rows["data"]["umls"] in cli("list", "data").out


def test_the_best_error_is_the_smallest(cli):
    rows = {row["name"]: row for row in json.loads(cli("list", "data", "--json").out)["data"]}
    recipes = [each for each in list_presets("recipe") if each.header.get("data") == "citeseer-heuristics"]
    measured = [each.header["measured"] for each in recipes if "rmse=" in each.header["measured"]]
    words = [text.split("rmse=")[1].split()[0].strip(";,") for text in measured]
    assert len(set(words)) > 2 and f"rmse={min(words, key=float)}" in rows["citeseer-heuristics"]["best"]


def test_list_as_json(cli):
    tables = json.loads(cli("list", "data", "--json").out)
    assert list(tables) == ["data"]
    assert {row["task"] for row in tables["data"]} <= set(TASKS)


def test_every_preset_has_its_header():
    for kind in ("data", "model", "recipe", "trainer", "logger"):
        for preset in list_presets(kind):
            assert preset.header.get("title"), preset.path
    for preset in list_presets("data"):
        assert preset.header["task"] in TASKS and preset.header["size"]
    for preset in list_presets("model"):
        assert preset.header["kind"] in {kind for task in TASKS.values() for kind in task.accepts}
    for preset in list_presets("recipe"):
        assert {"measured", "settings", "selection"} <= set(preset.header), preset.path
        # A published score has a source; our settings for other data have neither.
        is_ours = preset.header["settings"].startswith("ours")
        assert "claim" in preset.header or (is_ours and "paper" not in preset.header), preset.path


def test_data_presets_and_known_graphs_are_the_same():
    from graphzoo.datasets import list_knowledge_graphs, list_node_graphs

    by_task = {"kg-completion": {"kg", "mixture"}, "node-classification": {"nodes"}}
    by_task["kg-completion"] |= set(list_knowledge_graphs())
    by_task["node-classification"] |= set(list_node_graphs())
    for task, names in by_task.items():
        assert {preset.name for preset in list_presets("data") if preset.header["task"] == task} == names


def test_names_are_compared_without_case_and_dashes():
    assert find_preset("data", "FB15k-237").name == "fb15k237"
    assert find_preset("data", "Countries_S1").name == "countries-s1"


def test_own_presets_come_first(own_presets):
    assert find_preset("data", "umls").header["title"] == "my own UMLS"
    assert find_preset("model", "nodeonly").path == own_presets / "model" / "nodeonly.yaml"
    assert find_preset("model", "knowformer").header["title"]  # shipped presets are still found
    (own_presets / "model" / "short.yml").write_text("# title: short\nmodel: {}\n")
    assert find_preset("model", "short").header == {"title": "short"}


def test_a_missing_folder_of_presets_is_named_once(cli, monkeypatch, workplace):
    monkeypatch.setenv("GRAPHZOO_CONFIGS", str(workplace / "nowhere"))
    listed = cli("list")
    assert listed.status == 0 and listed.out
    assert listed.err == f"GRAPHZOO_CONFIGS names {workplace / 'nowhere'}, but there is no such folder\n"


def test_a_model_that_cannot_do_the_task_is_refused_with_the_reason(own_presets):
    with pytest.raises(UsageError) as error:
        make_plan("fit", ["--model", "nodeonly", "--data", "fb15k237"])
    assert "a node encoder" in str(error.value)
    assert "Models for it: knowformer" in str(error.value)


def test_presets_come_first_in_the_order_data_model_recipe_overlays():
    plan = make_plan(
        "fit",
        ["--x.y=1", "--logger", "wandb,csv", "--trainer=cpu", "--model=knowformer", "--data", "umls"][1:],
    )
    files = [value for option, value in zip(plan.arguments, plan.arguments[1:]) if option == "--config"]  # noqa: B905
    tails = [
        "data/umls.yaml",
        "model/knowformer.yaml",
        "recipe/knowformer/umls.yaml",
        "trainer/cpu.yaml",
        "logger/csv.yaml",
        "logger/wandb.yaml",
    ]
    assert [file.endswith(tail) for file, tail in zip(files, tails, strict=True)] == [True] * len(tails)


def test_overrides_follow_the_presets_wherever_they_are_typed():
    plan = make_plan("fit", ["--model.lr", "1", "--model", "knowformer", "--data.seed=3", "--data", "umls"])
    assert plan.arguments[-3:] == ("--model.lr", "1", "--data.seed=3")
    assert plan.arguments[0] == "--config"


FILE = """
model:
  class_path: graphzoo.tasks.NodeClassification
  init_args:
    encoder:
      class_path: graphzoo.encoders.GALiT
    lr: 0.5
data:
  class_path: graphzoo.datamodules.NodeDataModule
  init_args:
    name: nodes
    path: club
"""


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("--data cora", r"sets its own data \(nodes\), so --data cora would have no effect"),
        ("--data cora --model galit", r"sets its own data \(nodes\)"),
        ("--data umls", r"sets its own data \(nodes\)"),
        (
            "--model nodeformer",
            r"sets its own encoder \(graphzoo.encoders.GALiT\), which contradicts --model nodeformer",
        ),
        ("--data nodes --model nodeformer", "sets its own encoder"),
        ("--data nodes --model galit", ""),
        ("--data nodes", ""),
        ("--model galit", ""),
    ],
)
@pytest.mark.parametrize("command", ["fit", "test"])
def test_names_and_a_configuration_file_must_agree(tmp_path, names, problem, command):
    """Else the data of the file would be trained on, but compared with the paper of the named data."""
    (tmp_path / "mine.yaml").write_text(FILE)
    words = [*names.split(), "--config", str(tmp_path / "mine.yaml"), "--data.path=club"]
    if problem:
        with pytest.raises(UsageError, match=problem):
            make_plan(command, words)
    else:
        plan = make_plan(command, words)
        assert plan.arguments[-3:] == tuple(words[-3:])
        assert plan.arguments.count(words[-2]) == 1, "a list that it adds to would be doubled"
        if names == "--model galit":  # without named data, the preset needs a task
            assert plan.arguments[0] == "--model=graphzoo.tasks.NodeClassification"


def test_an_empty_configuration_file_is_refused(tmp_path):
    (tmp_path / "mine.yaml").write_text("# nothing yet\n")
    with pytest.raises(UsageError, match=r"mine\.yaml has no settings"):
        make_plan("fit", ["--model=knowformer", "--data=umls", f"--config={tmp_path / 'mine.yaml'}"])


def test_a_configuration_file_with_a_path_beside_named_data_is_refused(tmp_path):
    (tmp_path / "mine.yaml").write_text("data:\n  init_args:\n    path: club\n")
    words = ["--model", "galit", "--config", str(tmp_path / "mine.yaml")]
    with pytest.raises(UsageError, match=r"its own data \(club\)"):
        make_plan("fit", [*words, "--data", "cora"])
    assert make_plan("fit", [*words, "--data", "nodes"]).data == "nodes"


@pytest.mark.parametrize("option", ["model.lr", "model.init_args.weight_decay", "model.lr_milestones"])
def test_options_that_an_optimizer_replaces_are_refused(option, tmp_path):
    words = ["--model", "galit", "--data", "cora", "--optimizer", "SGD", f"--{option}=1"]
    (tmp_path / "mine.yaml").write_text("optimizer:\n  class_path: torch.optim.SGD\n")
    in_file = [*words[:4], "--config", str(tmp_path / "mine.yaml"), words[-1]]
    for given in (words, in_file):
        with pytest.raises(
            UsageError, match=r"replaces the task's own optimiser[\s\S]*Give --(optimizer|lr_scheduler)"
        ):
            make_plan("fit", given)
    assert make_plan("fit", [*words[:-1], "--optimizer.lr=1"]).arguments[-1] == "--optimizer.lr=1"


def test_a_recipe_can_be_chosen_or_left_out():
    names = ["--model", "knowformer", "--data", "umls"]
    assert make_plan("fit", names).recipe == "knowformer/umls"
    assert make_plan("fit", [*names, "--recipe", "umls-demo"]).recipe == "knowformer/umls-demo"
    assert make_plan("fit", [*names, "--recipe", "none"]).recipe == ""
    assert make_plan("fit", ["--model", "knowformer", "--data", "kinship"]).recipe == ""


def test_class_paths_are_passed_on():
    plan = make_plan("fit", ["--model", "my.package.Module", "--data", "my.package.Data"])
    assert plan.arguments == ("--model=my.package.Module", "--data=my.package.Data")
    assert (plan.model, plan.data) == ("module", "data")


def test_seed_is_short_for_seed_everything():
    names = ["--model", "knowformer", "--data", "umls"]
    for option in ("--seed", "--seed_everything"):
        plan = make_plan("fit", [*names, option, "5"])
        assert plan.seed == 5
        assert plan.arguments[-2:] == ("--seed_everything", "5")


def test_early_stopping_monitors_the_metric_of_the_task():
    names = ["--model", "knowformer", "--data", "umls"]
    plan = make_plan("fit", [*names, "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.patience=2"])
    assert "--trainer.callbacks.monitor=val/mrr" in plan.arguments
    assert (
        plan.arguments.index("--trainer.callbacks.monitor=val/mrr")
        == plan.arguments.index("--trainer.callbacks+=EarlyStopping") + 1
    )
    own = make_plan(
        "fit", [*names, "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/mr"]
    )
    assert "--trainer.callbacks.monitor=val/mrr" not in own.arguments


def test_plugin_encoders_are_found_by_name(monkeypatch):
    from importlib.metadata import EntryPoint

    from graphzoo.catalog import classes as registry

    entry = EntryPoint("ownformer", "helpers.own:OwnEncoder", registry.ENCODER_GROUP)
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [entry] if group == registry.ENCODER_GROUP else []
    )
    plan = make_plan("fit", ["--model", "OwnFormer", "--data", "umls"])
    assert "--model.init_args.encoder=helpers.own.OwnEncoder" in plan.arguments
    assert plan.model == "ownformer"
    assert is_trusted("helpers.own.OwnEncoder")


@pytest.mark.parametrize("typed", ["gcn", "GCN"])
def test_a_preset_is_preferred_to_a_plugin_of_its_name(typed, monkeypatch, capsys):
    from importlib.metadata import EntryPoint

    from graphzoo.catalog import classes as registry
    from graphzoo.cli.lists import list_main

    entry = EntryPoint("gcn", "helpers.own:OwnEncoder", registry.ENCODER_GROUP)
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [entry] if group == registry.ENCODER_GROUP else []
    )
    plan = make_plan("fit", ["--model", typed, "--data", "cora"])
    assert plan.model == "gcn" and not any("OwnEncoder" in argument for argument in plan.arguments)
    assert list_main(["model"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "plug-in" in line]
    assert len(lines) == 1 and lines[0].endswith("so give --model.encoder helpers.own.OwnEncoder")


def test_only_registered_and_imported_classes_are_trusted():
    assert is_trusted("graphzoo.encoders.KnowFormer")
    assert is_trusted("lightning.pytorch.callbacks.EarlyStopping")
    assert not is_trusted("os.system")
    assert "subprocess" in sys.modules
    assert not is_trusted("subprocess.Popen")
    assert not is_trusted("helpers_not_imported.OwnEncoder")
    from helpers import own

    assert is_trusted(f"{own.__name__}.OwnEncoder")
    assert not is_trusted("torch.hub.load")
    assert not is_trusted("graphzoox.encoders.Evil")


def test_header_ends_where_the_settings_begin(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(
        "# A sentence: with a colon, which is not a key of one word\n# key: value: more\na: 1\n# late: no\n"
    )
    assert read_header(file) == {"key": "value: more"}
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_header(file) == {"key": "value: more"}, "as editors on Windows begin a file"


def test_nearest_names_are_found():
    assert nearest("knowfromer", ["nodeformer", "knowformer"]) == ["knowformer", "nodeformer"]
    assert nearest("fb15k", ["umls", "fb15k237"]) == ["fb15k237"]
    assert nearest("zzz", ["umls"]) == []


def test_shorten_keeps_the_first_lines():
    assert shorten("a\n\nb\nc\nd", lines=3) == "a\nb\n..."
    assert len(shorten("x" * 1000)) == 400


def test_an_unknown_kind_names_all_and_the_listed_score_is_nearest_to_the_paper(cli):
    refused = cli("list", "foo")
    assert refused.status == 2 and "unknown kind 'foo'\nThere are: model, data, recipe" in refused.err
    scores = {"above": 0.9, "near": 0.59, "below": 0.3}
    recipes = [
        Preset(
            "recipe", f"galit/{name}", Path(name), {"measured": f"acc={ours}; one core", "paper": "acc=0.6"}
        )
        for name, ours in scores.items()
    ]
    assert lists._best("model", recipes) == {"galit": "near: acc=0.59 (paper 0.6); one core"}


@pytest.mark.parametrize("command", [["fit", "--model=galit"], ["compare"]])
def test_a_folder_given_as_data_is_refused_with_a_remedy(cli, command):
    Path("club").mkdir()
    refused = cli(*command, "--data=club")
    assert (
        refused.status == 2 and "--data takes the name of a data set, and 'club' is a folder\n" in refused.err
    )
    assert "--data links or --data nodes with --data.path club" in refused.err
