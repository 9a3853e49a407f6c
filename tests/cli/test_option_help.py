"""Help that lists the options of a model and of data, without importing either."""

import ast
import inspect
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from graphzoo.catalog import classes
from graphzoo.catalog.presets import list_presets
from graphzoo.cli.commands import COMMANDS
from graphzoo.cli.option_help import class_options

CLASSES = [
    *(f"graphzoo.encoders.{name}" for name in ("KnowFormer", "GALiT", "GNN", "PENCIL", "Polynormer", "SGC")),
    *(f"graphzoo.tasks.{name}" for name in ("KGCompletion", "LinkPrediction", "NodeClassification")),
    *(f"graphzoo.datamodules.{name}" for name in ("KGDataModule", "LinkDataModule", "NodeDataModule")),
]


@pytest.mark.parametrize("path", CLASSES)
def test_options_are_those_of_the_class(path):
    """Options read from the source equal those of the imported class, and each has a description."""
    module, _, name = path.rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    found = class_options(path)
    assert [each.name for each in found] == list(parameters)
    for each in found:
        default = parameters[each.name].default
        if default is inspect.Parameter.empty:
            assert each.default == ""
        elif isinstance(default, str):
            assert each.default == default
        elif each.default != "null" and "*" not in each.default:
            assert ast.literal_eval(each.default.capitalize()) == default
    assert not [each.name for each in found if not each.meaning]


@pytest.mark.parametrize("path", ["graphzoo.nowhere.Net", "json.JSONEncoder", "sys.flags", "graphzoo.fit"])
def test_without_the_source_of_a_class_no_options_are_found(path):
    assert class_options(path) == []


def test_options_without_a_docstring_have_no_description():
    """`JSONEncoder` describes its options in paragraphs, not in a list."""
    found = class_options("json.encoder.JSONEncoder")
    assert found[0].name == "skipkeys" and not any(option.meaning for option in found)


def test_a_model_lists_its_options(cli):
    result = cli("fit", "--model", "knowformer", "--help")
    assert result.status == 0
    lines = result.out.splitlines()
    place = lines.index("  --model.encoder.noise_std 4.0")
    assert "Standard deviation of the query net's noise" in lines[place + 1]
    assert "  --model.lr 0.005" in lines and not any("--data." in line for line in lines[23:])
    assert max(map(len, lines)) <= 80
    assert not any(line.startswith("  --model.encoder.spec") for line in lines)


def test_a_data_set_lists_its_options(cli):
    lines = cli("fit", "--data", "umls", "--help").out.splitlines()
    assert "  --data.batch_size 64" in lines and "  --data.seed as --seed" in lines
    assert "  --model.ties realistic" in lines and "graphzoo.tasks.KGCompletion:" in lines
    assert "      Data root; null takes GRAPHZOO_DATA or the user's cache folder." in lines, "as it is typed"
    assert not any("None" in line for line in lines)


def test_help_shows_settings_of_the_recipe(cli):
    lines = cli("fit", "--model", "galit", "--data", "cora", "--help").out.splitlines()
    chosen = next(line for line in lines if line.startswith("  --model.encoder.hidden_channels"))
    recipe = next(line.split(":")[1] for line in reversed(lines) if "hidden_channels:" in line)
    assert chosen.split()[1] == recipe.strip()
    assert any("settings are" in line for line in lines)


def test_own_data_need_no_files_for_help(cli):
    result = cli("fit", "--model", "pencil", "--data", "links", "--help")
    assert result.status == 0 and "\n  --data.num_neighbors " in result.out


def test_every_model_has_help(cli):
    for preset in list_presets("model"):
        result = cli("fit", "--model", preset.name, "--help")
        assert result.status == 0
        assert any(line.startswith("  --model.encoder.") for line in result.out.splitlines()[23:])


def test_help_of_a_plug_in_is_read_from_its_source(cli, monkeypatch):
    entry = EntryPoint("ownformer", "helpers.own:OwnEncoder", classes.ENCODER_GROUP)
    monkeypatch.setattr(classes, "entry_points", lambda group: [entry])
    result = cli("fit", "--model", "ownformer", "--help")
    assert result.status == 0 and "helpers.own.OwnEncoder:" in result.out


def test_a_preset_may_name_its_class_alone(cli, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    file = Path("presets/model/mine.yaml")
    file.parent.mkdir(parents=True)
    file.write_text("# kind: node\nmodel: {init_args: {encoder: graphzoo.encoders.MLP}}\n")
    result = cli("fit", "--model", "mine", "--help")
    assert result.status == 0 and "  --model.encoder.hidden_channels " in result.out, result.err


def test_an_unknown_name_is_refused_in_help(cli):
    result = cli("fit", "--model", "knowfromer", "--help")
    assert result.status == 2 and "Did you mean: knowformer" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_names_debug(cli, command):
    out = cli(command, "--help").out
    assert out.count("--debug ") == 1, out


def test_help_names_optimisers_and_precision(cli):
    for command in ("fit", "validate", "test"):
        out = cli(command, "--help").out
        assert "--matmul_precision" in out and "--print_config" in out
        assert ("--optimizer NAME" in out) == ("--lr_scheduler" in out) == (command == "fit")
