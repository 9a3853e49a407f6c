"""Traps of LightningCLI and jsonargparse that the command avoids, and presets in their parser."""

from pathlib import Path

import pytest
import yaml

from graphzoo.catalog.presets import list_presets

NAMES = ["--model", "knowformer", "--data", "umls"]


@pytest.fixture
def config(cli):
    """`config(*arguments)` returns the configuration of `fit` with these arguments."""

    def read(*arguments, names=NAMES):
        result = cli("fit", *names, *arguments, "--print_config")
        assert result.status == 0, result.err
        return yaml.safe_load(result.out)

    return read


def test_interpolation_follows_a_later_override(config):
    """parser_mode="omegaconf" would resolve the reference when the file is read, before the override."""
    Path("linked.yaml").write_text("data:\n  init_args:\n    eval_batch_size: ${data.init_args.batch_size}\n")
    assert (
        config("--config", "linked.yaml", "--data.batch_size=7")["data"]["init_args"]["eval_batch_size"] == 7
    )


def test_absolute_references_work_inside_a_subcommand(config):
    Path("linked.yaml").write_text("model:\n  init_args:\n    num_negatives: ${data.init_args.batch_size}\n")
    assert (
        config("--config", "linked.yaml", "--data.batch_size=9")["model"]["init_args"]["num_negatives"] == 9
    )


def test_a_wrong_reference_is_a_short_error(cli):
    Path("linked.yaml").write_text("model:\n  init_args:\n    lr: ${data.init_args.nope}\n")
    result = cli("fit", *NAMES, "--config", "linked.yaml")
    assert result.status == 2 and "nope" in result.err and len(result.err.splitlines()) <= 6


@pytest.mark.parametrize(
    "option", ["--trainer.max_epoch=3", "--seed_everythin=1", "--trainer.log_every=1", "--ckpt=x"]
)
def test_abbreviated_options_are_refused(cli, option):
    """argparse accepts any unambiguous prefix; each parser of a subcommand must switch this off."""
    result = cli("fit", *NAMES, option, "--print_config")
    assert result.status == 2 and "unknown option" in result.err


def test_configuration_files_are_still_read(config):
    """--config would be lost by overriding init_parser instead of parser_class."""
    for name, value in (("one", 1), ("two", 2)):
        Path(f"{name}.yaml").write_text(f"trainer:\n  max_epochs: {value}\n")
    assert config("--config", "one.yaml")["trainer"]["max_epochs"] == 1
    assert config("--config", "one.yaml", "-c", "two.yaml")["trainer"]["max_epochs"] == 2
    assert config("--config", "one.yaml", "--config=two.yaml")["trainer"]["max_epochs"] == 2
    assert config("--trainer.max_epochs=5", "--config", "one.yaml")["trainer"]["max_epochs"] == 1


def test_overrides_win_in_any_order(config):
    for arguments in (
        ["--model.lr=0.5", *NAMES, "--data.batch_size=3"],
        [*NAMES, "--data.batch_size=3", "--model.lr=0.5"],
        ["--data=umls", "--model.lr", "0.5", "--model=knowformer", "--data.init_args.batch_size", "3"],
    ):
        found = config(*arguments, names=[])
        assert found["model"]["init_args"]["lr"] == 0.5 and found["data"]["init_args"]["batch_size"] == 3


def test_a_recipe_changes_only_what_differs(config):
    found = config(names=["--model", "knowformer", "--data", "nell995-v1"])
    encoder = found["model"]["init_args"]["encoder"]["init_args"]
    assert (encoder["hidden_channels"], encoder["num_layers"], encoder["noise_std"]) == (64, 3, 4.0)
    bare = config("--recipe", "none", names=["--model", "knowformer", "--data", "nell995-v1"])
    assert bare["model"]["init_args"]["encoder"]["init_args"]["hidden_channels"] == 32


def test_a_model_preset_fits_a_configuration_of_the_users_own(config):
    Path("mine.yaml").write_text(
        "model:\n  class_path: graphzoo.tasks.KGCompletion\n"
        "data:\n  class_path: graphzoo.datamodules.KGDataModule\n  init_args:\n    name: nations\n"
    )
    found = config("--config", "mine.yaml", names=["--model", "knowformer"])
    assert found["data"]["init_args"]["name"] == "nations"
    assert found["model"]["init_args"]["encoder"]["class_path"] == "graphzoo.encoders.KnowFormer"


def test_class_paths_instead_of_names(config):
    found = config(
        "--model.encoder=graphzoo.encoders.KnowFormer", "--data.name=kinship", "--model.encoder.num_layers=2",
        names=["--model=graphzoo.tasks.KGCompletion", "--data=graphzoo.datamodules.KGDataModule"],
    )  # fmt: skip
    assert found["data"]["init_args"]["name"] == "kinship"
    assert found["model"]["init_args"]["encoder"]["init_args"]["num_layers"] == 2


def test_optimisers_of_torch_are_found_by_name(config):
    found = config("--optimizer=AdamW", "--optimizer.lr=0.01")
    assert found["optimizer"]["class_path"] == "torch.optim.AdamW"


def test_enumerations_as_defaults_are_written_to_yaml(config):
    """The default of Timer's interval is an enumeration annotated as a string, which YAML cannot hold."""
    Path("timed.yaml").write_text("trainer:\n  callbacks: [Timer]\n")
    (timer,) = config("--config", "timed.yaml")["trainer"]["callbacks"]
    assert timer["class_path"].endswith(".Timer") and timer["init_args"]["interval"] == "step"


def test_loggers_are_given_by_name_and_in_lists(config):
    assert config()["trainer"]["logger"] is None
    assert config("--logger=csv")["trainer"]["logger"] == []
    several = config("--logger=wandb", "--logger", "tensorboard,csv", "--trainer.logger.version=v1")
    assert [logger["class_path"].rpartition(".")[2] for logger in several["trainer"]["logger"]] == [
        "WandbLogger", "TensorBoardLogger",
    ]  # fmt: skip


def test_every_data_set_and_overlay_parses(config):
    from graphzoo.catalog.presets import list_presets

    for preset in list_presets("data"):
        extra = ["--data.path=folder"] if "requires" in preset.header else []
        models = {"kg-completion": "knowformer", "node-classification": "galit"}
        model = models.get(preset.header["task"], "pencil")
        found = config(*extra, names=["--model", model, "--data", preset.name])
        # Estimation of heuristics uses the pairs of the link data.
        assert found["data"]["init_args"]["name"] == preset.name.replace("-heuristics", "-link")
    for preset in list_presets("trainer"):
        config("--trainer", preset.name)


def test_recipes_are_the_published_settings(config):
    """The rows are the settings of the authors' README."""
    rows = {
        "fb15k237": (96, 32, "bce", 256, 0.5, 1e-4, 20, "one_hop"),
        "wn18rr": (32, 32, "ce", None, None, 1e-4, 20, "exact"),
        "nell995": (16, 32, "bce", 65536, 0.5, 1e-4, 20, "exact"),
        "yago310": (12, 32, "bce", 65536, 1.0, 1e-4, 2, "exact"),
        **{f"fb15k237-v{k}": (64, 64, "bce", 64, 0.5, 1e-4, 20, "exact") for k in range(1, 5)},
        **{f"wn18rr-v{k}": (64, 32, "bce", 256, 0.5, 1e-4, 20, "exact") for k in (1, 2)},
        **{f"wn18rr-v{k}": (64, 32, "ce", None, None, 1e-4, 20, "exact") for k in (3, 4)},
        **{f"nell995-v{k}": (64, 64, "bce", 65536, 1.0, 1e-5, 20, "exact") for k in (1, 3, 4)},
        "nell995-v2": (64, 64, "ce", None, None, 1e-5, 20, "exact"),
    }
    for name, (batch, width, loss, negatives, temperature, decay, epochs, removed) in rows.items():
        found = config(names=["--model", "knowformer", "--data", name])
        task, data = found["model"]["init_args"], found["data"]["init_args"]
        assert data["batch_size"] == 4 * batch and data["batch_size"] % data["micro_batch_size"] == 0, name
        # Half of a device's batch if the states of all its queries would take more than 10 GiB.
        assert data["micro_batch_size"] == (batch if "-v" in name else batch // 2), name
        assert task["encoder"]["init_args"]["hidden_channels"] == width, name
        assert (task["loss"], task["weight_decay"], task["remove_facts"]) == (loss, decay, removed), name
        assert task["loss_scale"] == (batch if loss == "bce" else 1.0), name
        if loss == "bce":
            assert (task["num_negatives"], task["adversarial_temperature"]) == (negatives, temperature), name
        assert (task["lr"], task["lr_milestones"], task["lr_gamma"]) == (0.005, [10, 15], 0.1), name
        assert found["trainer"]["max_epochs"] == epochs, name
    from graphzoo.catalog.presets import list_presets

    ours = {
        preset.name.partition("/")[2]
        for preset in list_presets("recipe", "knowformer")
        if "as published" in preset.header.get("title", "")
    }
    assert ours == set(rows)


@pytest.mark.parametrize(
    "recipe, sampler, width, layers, batch, epochs",
    [
        ("citeseer-link", (2, 20), 1024, 2, 2048, 150),
        ("citeseer-link-heart", (2, 20), 1024, 2, 2048, 300),
        ("cora-link", (2, 20), 512, 8, 2048, 150),
        ("pubmed-link", (2, 16), 512, 8, 4096, 80),
        ("pubmed-link-heart-ours", (2, 20), 512, 4, 2048, 250),
        ("ogbl-collab", (1, 75), 512, 8, 8192, 10),
        ("ogbl-ppa", (1, 150), 512, 4, 16384, 15),
        ("ogbl-citation2", (1, 40), 512, 3, 65536, 1),
        ("ogbl-ddi", (1, 350), 512, 8, 4096, 8),
    ],
)
def test_pencils_recipes_are_the_published_settings(config, recipe, sampler, width, layers, batch, epochs):
    """The values are those of Tables 5 and 6 of the paper."""
    from graphzoo.catalog.presets import find_preset

    data = find_preset("recipe", recipe, model="pencil").header.get("data", recipe)
    found = config(names=["--model", "pencil", "--data", data, "--recipe", recipe])
    task, module = found["model"]["init_args"], found["data"]["init_args"]
    encoder = task["encoder"]["init_args"]
    assert (module["depth"], module["num_neighbors"]) == sampler
    assert (encoder["hidden_channels"], encoder["num_layers"]) == (width, layers)
    assert (encoder["num_heads"], encoder["ffn_channels"], encoder["dropout"]) == (8, 2048, 0.1)
    assert (module["batch_size"], found["trainer"]["max_epochs"]) == (batch, epochs)
    assert (task["lr"], task["weight_decay"], module["use_features"]) == (1e-4, 0.01, False)


def test_short_help_is_short_and_long_help_is_long(cli):
    """Short help fits into a terminal of 80 columns and 24 lines."""
    assert max(map(len, cli("--help").out.splitlines())) <= 80
    for command in ("fit", "validate", "test"):
        short = cli(command, "--help")
        lines = short.out.splitlines()
        assert short.status == 0 and 15 <= len(lines) < 24 and max(map(len, lines)) <= 80, short.out
        for kind in ("trainer", "logger"):
            (line,) = (line for line in lines if f"--{kind} NAME" in line)
            assert all(preset.name in line for preset in list_presets(kind)), line
        assert ("--dry-run" in short.out) == ("--no-test" in short.out) == (command == "fit")
    chosen = cli("fit", "--help", "--model=knowformer", "--data=fb15k237")
    assert "remove_facts: one_hop" in chosen.out
    long = cli("fit", "--help-all")
    assert long.status == 0 and len(long.out.splitlines()) > 200 and "--trainer.max_epochs" in long.out


def test_a_class_has_help(cli):
    result = cli("fit", "--model.help", "graphzoo.tasks.KGCompletion")
    assert result.status == 0 and "adversarial_temperature" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model", "helpers.own.OwnEncoder"],
            "is an encoder, but a task is needed here\nGive --model.encoder helpers",
        ),
        (
            ["--model", "knowformer", "--model.encoder", "graphzoo.encoders.GALiT"],
            "the task needs a QueryEncoder, and graphzoo.encoders.GALiT is none\nModels with such",
        ),
    ],
    ids=["as a model", "of another kind"],
)
def test_an_encoder_in_the_wrong_place_is_refused(cli, words, message):
    for data in ("umls", "kinship"):  # with a recipe, and without one
        refused = cli("fit", *words, "--data", data)
        assert refused.status == 2 and message in refused.err
