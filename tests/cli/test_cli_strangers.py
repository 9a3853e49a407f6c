"""Runs and checkpoints of unknown origin: they remove no files, run no code and cannot hang the command."""

import os
import re
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.same_runs import load
from lightning.pytorch.callbacks import ModelCheckpoint

import graphzoo
from graphzoo.callbacks import BestCheckpoint
from graphzoo.checkpoints.paths import forget_foreign_paths
from graphzoo.checkpoints.read import read_checkpoint
from graphzoo.errors import UsageError


def files_of(run):
    return {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}


def change(path, alter):
    """Change a checkpoint by `alter` and save it."""
    checkpoint = load(path)
    alter(checkpoint)
    torch.save(checkpoint, path)


def state_of_best(checkpoint):
    return next(state for name, state in checkpoint["callbacks"].items() if "BestCheckpoint" in name)


@pytest.mark.fault(
    "the checkpoint of a run names another folder as its best checkpoint",
    "paths in a checkpoint are ignored; nothing outside the run is removed",
)
def test_a_resume_removes_no_files_named_by_a_checkpoint(trained, cli):
    """Lightning would remove the path that the state names as the best checkpoint, even a whole folder."""
    shutil.copytree(trained, "run")
    Path("victim").mkdir()
    Path("victim/letters.txt").write_text("kept")
    Path("run/checkpoints/best.ckpt").unlink()
    directory = str(Path("run/checkpoints").absolute())
    named = f"{directory}/../../victim"

    def alter(checkpoint):
        worst = torch.tensor(0.0, dtype=torch.float64)
        paths = dict.fromkeys(["best_model_path", "kth_best_model_path", "last_model_path"], named)
        state = {"dirpath": directory, "best_k_models": {named: worst}, "best_model_score": worst}
        state_of_best(checkpoint).update(paths | state | {"kth_value": worst})

    change("run/checkpoints/last.ckpt", alter)
    done = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert done.status == 0, done.err
    assert Path("victim/letters.txt").read_text() == "kept"
    assert Path("run/checkpoints/best.ckpt").is_file()


def first_entry(checkpoint):
    return checkpoint["optimizer_states"][0]["state"][0]


def entry(name, value):
    return lambda checkpoint: first_entry(checkpoint).update({name: value})


def weight(value):
    return lambda checkpoint: checkpoint["state_dict"].update({WEIGHT: value})


def same_weight(checkpoint):
    params = checkpoint["optimizer_states"][0]["param_groups"][0]["params"]
    return [params[0]] * len(params)


def nested(checkpoint):
    value = ["a"]
    for _ in range(60):
        value = [value, value]
    checkpoint["hyper_parameters"]["ties"] = value


WEIGHT = "encoder.relation_embedding.weight"
SHAPE = (6, 8)
DAMAGES = {
    "optimiser of another shape": (entry("exp_avg", torch.zeros(3)), "shape (3,), expected (6, 8)"),
    "expanded view": (entry("exp_avg", torch.zeros(1).expand(SHAPE)), "stores fewer numbers"),
    "optimiser not finite": (entry("exp_avg_sq", torch.full(SHAPE, torch.inf)), "48 numbers that are NaN"),
    "whole numbers": (entry("exp_avg", torch.zeros(SHAPE, dtype=torch.int64)), "torch.int64"),
    "half an entry": (lambda c: first_entry(c).pop("exp_avg_sq"), "has exp_avg, step, expected"),
    "one entry less": (lambda c: c["optimizer_states"][0]["state"].pop(0), "weights, but"),
    "no entries": (lambda c: c["optimizer_states"][0].update(state={}), "empty after the first step"),
    "no optimiser": (lambda c: c.pop("optimizer_states"), "optimizer_states is missing"),
    "emptied optimisers": (lambda c: c.update(optimizer_states=[]), "states of 1 optimisers"),
    "one group": (lambda c: c["optimizer_states"][0]["param_groups"].pop(), "does not have 2 groups"),
    "a rate of letters": (
        lambda c: c["optimizer_states"][0]["param_groups"][0].update(lr="fast"),
        "lr of the optimiser is 'fast'",
    ),
    "a weight twice": (
        lambda c: c["optimizer_states"][0]["param_groups"][0].update(params=same_weight(c)),
        "names a weight twice",
    ),
    "a weight in two groups": (
        lambda c: c["optimizer_states"][0]["param_groups"][1]["params"].__setitem__(0, 0),
        "names a weight twice",
    ),
    "weights named by letters": (
        lambda c: c["optimizer_states"][0]["param_groups"][0]["params"].__setitem__(0, "a"),
        "does not name its weights by numbers",
    ),
    "a state in no group": (
        lambda c: c["optimizer_states"][0]["state"].update({999: dict(first_entry(c))}),
        "weights that are in no group",
    ),
    "a state of letters": (
        lambda c: c["optimizer_states"][0]["state"].update({0: "a"}),
        "state of weight 0 is not a table",
    ),
    "an unknown loop": (
        lambda c: c["loops"]["fit_loop"].update(other={}),
        "progress of the training has an unknown entry other",
    ),
    "an unknown count": (
        lambda c: c["loops"]["fit_loop"]["epoch_progress"]["current"].update(other=1),
        "has an unknown entry other",
    ),
    "a loader's epoch of letters": (
        lambda c: c["loops"]["fit_loop"].update(
            state_dict={"combined_loader": [{"epoch": "x", "given": 0, "length": 1}]}
        ),
        "epoch of a loader is 'x', not a whole number",
    ),
    "emptied loops": (lambda c: c.update(loops={}), "progress of the training is missing"),
    "no loops": (lambda c: c.pop("loops"), "loops is missing"),
    "another epoch": (lambda c: c.update(epoch=0), "it contradicts itself"),
    "negative epoch": (lambda c: c.update(epoch=-1), "epoch is '-1', not a whole number"),
    "textual step": (lambda c: c.update(global_step="8"), "global_step is '8', not a whole number"),
    "negative format": (lambda c: c["graphzoo"].update(format=-1), "format is '-1', not a whole number"),
    "textual progress": (
        lambda c: c["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"].update(ready="x"),
        "ready of epoch_loop.batch_progress of the training is 'x'",
    ),
    "no schedule": (lambda c: c.update(lr_schedulers=[]), "states of 1 learning-rate schedules"),
    "schedule of letters": (
        lambda c: c["lr_schedulers"][0].update(last_epoch="x"),
        "last_epoch of the learning",
    ),
    "callback of letters": (lambda c: c["callbacks"]["Throughput"].update(fit_seconds="x"), "fit_seconds of"),
    "weight not finite": (weight(torch.full(SHAPE, torch.nan)), "48 numbers that are NaN or infinite"),
    "weight of another shape": (weight(torch.zeros(2)), "shape (2,), expected (6, 8)"),
    "weight of one element": (weight(torch.zeros(1).expand(10**6, 10**6)), "stores fewer numbers"),
    "complex weight": (weight(torch.zeros(SHAPE, dtype=torch.complex64)), "ComplexFloatStorage"),
    "weight missing": (lambda c: c["state_dict"].pop(WEIGHT), "is missing in the file"),
    "weight too many": (lambda c: c["state_dict"].update(other=torch.zeros(1)), "is unknown to the model"),
    "weight without a name": (
        lambda c: c["state_dict"].update({None: torch.zeros(1)}),
        "name of a weight is None",
    ),
    "description of another kind": (lambda c: c.update(graphzoo=[1]), "its entry graphzoo is missing"),
    "encoder without settings": (
        lambda c: c["graphzoo"]["encoder"].pop("init_args"),
        "its entry graphzoo.encoder.init_args is missing",
    ),
    "settings in a list": (lambda c: c.update(hyper_parameters=[1]), "its entry hyper_parameters is missing"),
    "progress in a tensor": (
        lambda c: c["loops"]["fit_loop"]["epoch_progress"]["current"].update(completed=torch.zeros(2)),
        "the number of epochs is",
    ),
    "state of the loop in a list": (
        lambda c: c["loops"]["fit_loop"].update({"epoch_loop.state_dict": ["a"]}),
        "epoch_loop.state_dict of the training is not a table",
    ),
    "nested lists": (nested, "far more than its"),
    "a list in itself": (lambda c: c.setdefault("x", []).append(c["x"]), "contains itself"),
    "endless number": (lambda c: c["hyper_parameters"].update(seed=10**400), "a number of 1,329 bits"),
}
KINDS = {
    "optimiser of another shape": (
        ("a tensor in a checkpoint has another shape, dtype or layout than model and optimiser expect"),
        "refused by name before it is loaded; torch would crash with a segmentation fault",
    ),
    "no entries": (
        "optimiser, progress or schedule in a checkpoint are missing, empty or contradictory",
        "refused; training does not silently start again",
    ),
    "nested lists": (
        "a small checkpoint whose values expand to a huge size",
        "refused before anything is built or printed",
    ),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.fault(*KINDS[kind]) if kind in KINDS else ()) for kind in DAMAGES],
)
def test_a_damaged_state_is_refused(trained, cli, kind):
    alter, message = DAMAGES[kind]
    shutil.copytree(trained, "run")
    change("run/checkpoints/last.ckpt", alter)
    columns, *_ = Path("run/metrics.csv").read_text().splitlines()
    with Path("run/metrics.csv").open("a") as file:  # like a run that was killed after its last checkpoint
        file.write("999" + "," * columns.count(",") + "\n")
    before = files_of("run")
    result = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert result.status == 2 and message in result.err, result.err
    assert len(result.err.splitlines()) <= 6
    assert files_of("run") == before, "a refused resume writes nothing"


@pytest.mark.fault(
    "a setting of the task in a checkpoint has the wrong type", "refused with its name and value"
)
def test_a_setting_of_a_wrong_type_is_named(trained):
    shutil.copytree(trained, "run")
    change("run/checkpoints/best.ckpt", lambda c: c["hyper_parameters"].update(lr="fast"))
    with pytest.raises(
        UsageError, match=r"best\.ckpt: the settings .* lr must be a number, above 0, got str: fast"
    ):
        graphzoo.load("run")


@pytest.mark.parametrize("value", ["8", (8,), 8j], ids=str)
def test_a_setting_of_the_encoder_of_a_wrong_type_is_named(trained, cli, value):
    shutil.copytree(trained, "run")
    change(
        "run/checkpoints/best.ckpt", lambda c: c["graphzoo"]["encoder"]["init_args"].update(num_heads=value)
    )
    message = rf"best\.ckpt: .*num_heads must be a number, at least 1, got {type(value).__name__}"
    with pytest.raises(UsageError, match=message):
        graphzoo.load("run")


def test_weights_without_names_are_not_loaded(trained):
    shutil.copytree(trained, "run")
    change("run/checkpoints/best.ckpt", lambda c: c["state_dict"].update({None: torch.zeros(1)}))
    with pytest.raises(UsageError, match="the name of a weight is None"):
        graphzoo.load("run")


@pytest.mark.fault(
    "a checkpoint without a version of Lightning, or of one that would have to be migrated", "refused"
)
@pytest.mark.parametrize("version", [None, "1.5.0", "2.x", 10**20, "2." + "9" * 5000])
def test_a_wrong_version_of_lightning_is_refused(trained, cli, version):
    shutil.copytree(trained, "run")
    key = "pytorch-lightning_version"
    change("run/checkpoints/best.ckpt", lambda c: c.pop(key) if version is None else c.update({key: version}))
    result = cli("test", "--ckpt_path", "run")
    assert result.status == 2 and f"refused: {key} is" in result.err.replace("does not fit", "refused"), (
        result.err
    )
    assert len(result.err.splitlines()) <= 6


def test_a_storage_larger_than_its_part_of_the_file_is_refused(tmp_path):
    """torch would trust the size in the description, and read beyond the end of the storage."""
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"weight": torch.arange(8.0)}}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in parts if name.endswith("data.pkl"))
    assert parts[name].count(b"K\x08") == 2  # elements of the storage, and of the tensor
    parts[name] = parts[name].replace(b"K\x08", b"J\x00\x00\x00\x10")
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    with pytest.raises(UsageError, match="describes 268,435,456 numbers, but has 32 bytes"):
        read_checkpoint(path)


HUGE = {
    "layers": lambda c: c["graphzoo"]["encoder"]["init_args"].update(num_layers=10**8),
    "a layer by name": lambda c: c["state_dict"].update({"encoder.layers.99999999.x": torch.zeros(1)}),
    "width": lambda c: c["graphzoo"]["encoder"]["init_args"].update(hidden_channels=10**6),
    "relations": lambda c: c["graphzoo"]["spec"].update(num_relations=10**10),
}


HUGE_SAID = {
    "width": "the settings say hidden_channels=1000000, but .* hidden_channels=8",
    "relations": "the graph has num_relations=10000000000, but the weights are those of 3",
}


@pytest.mark.fault(
    "a checkpoint asks for a hundred million layers, or for layers that fill the memory",
    "refused; a model with more weights than the checkpoint is never built",
)
@pytest.mark.parametrize("kind", HUGE)
def test_a_model_larger_than_its_weights_is_not_built(trained, kind):
    shutil.copytree(trained, "run")
    change("run/checkpoints/best.ckpt", HUGE[kind])
    with pytest.raises(UsageError, match=HUGE_SAID.get(kind, "the weights do not fit")):
        graphzoo.load("run")


def test_a_run_larger_than_its_checkpoint_is_not_built(trained, cli):
    """config.yaml and the checkpoint agree about the number of layers, but the weights do not."""
    shutil.copytree(trained, "run")
    change("run/checkpoints/last.ckpt", HUGE["layers"])
    config = Path("run/config.yaml")
    config.write_text(re.sub(r"\bnum_layers: \d+", "num_layers: 100000000", config.read_text()))
    result = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert result.status == 2 and "the settings ask for more than" in result.err, result.err


@pytest.mark.parametrize("value", [5, [{}], [["a"]], "abc"])
def test_names_of_relations_that_are_not_strings_are_refused(trained, value):
    shutil.copytree(trained, "run")
    change("run/checkpoints/best.ckpt", lambda checkpoint: checkpoint["graphzoo"].update(relations=value))
    with pytest.raises(UsageError, match="no usable 'relations'"):
        graphzoo.load("run")


@pytest.mark.parametrize("best_is_there", [True, False])
def test_a_best_checkpoint_restores_only_scores(tmp_path, best_is_there):
    callback = BestCheckpoint(tmp_path, monitor="val/mrr")
    if best_is_there:
        (tmp_path / "best.ckpt").touch()
    score = torch.tensor(0.5)
    others = {"last_model_path": "/elsewhere", "kth_best_model_path": "/elsewhere", "dirpath": "/elsewhere"}
    callback.load_state_dict(
        {"best_model_path": "/elsewhere", "best_model_score": score, "best_k_models": {"/x": score}, **others}
    )
    own = str(tmp_path / "best.ckpt") if best_is_there else ""
    assert (callback.best_model_path, callback.kth_best_model_path, callback.last_model_path) == (
        own,
        own,
        "",
    )
    assert callback.best_k_models == ({own: score} if best_is_there else {})
    assert callback.best_model_score == (score if best_is_there else None)
    assert callback.dirpath == str(tmp_path)


@pytest.mark.parametrize(
    "name", ["../../victim", "inner/a.ckpt", "folder.ckpt", "link.ckpt", "../other/a.ckpt"]
)
def test_model_checkpoints_ignore_paths_outside_their_folder(tmp_path, name):
    """A ModelCheckpoint that the user adds would remove the worst of the files that its state names."""
    (tmp_path / "folder.ckpt").mkdir()
    (tmp_path / "link.ckpt").symlink_to(tmp_path)
    callback = ModelCheckpoint(tmp_path, monitor="val/mrr", save_top_k=2)
    trainer = SimpleNamespace(checkpoint_callbacks=[callback])
    own, foreign = str(tmp_path / "a.ckpt"), f"{tmp_path}/{name}"
    state = {"dirpath": str(tmp_path), "best_model_score": torch.tensor(1.0), "kth_value": torch.tensor(0.0)}
    state |= {"best_model_path": own, "kth_best_model_path": own, "last_model_path": ""}
    for field in ("best_model_path", "kth_best_model_path", "last_model_path", "best_k_models"):
        found = {field: foreign} if field != "best_k_models" else {field: {own: 1.0, foreign: 0.0}}
        checkpoint = {"callbacks": {callback.state_key: {**state, "best_k_models": {own: 1.0}, **found}}}
        forget_foreign_paths(trainer, checkpoint)
        assert name not in str(checkpoint)
    checkpoint = {"callbacks": {callback.state_key: {**state, "best_k_models": {own: 1.0}}}}
    forget_foreign_paths(trainer, checkpoint)
    assert checkpoint["callbacks"][callback.state_key]["best_k_models"] == {own: 1.0}


@pytest.mark.fault(
    ("the graph folder of a run holds symbolic links to a secret file, to itself or to a device"),
    "export copies only the files that a run writes, and follows no link",
)
@pytest.mark.parametrize("name", ["letters.txt", "knowledge_graph.npz"])
def test_an_export_follows_no_links(trained, cli, name):
    shutil.copytree(trained, "run")
    Path("secret").write_text("a key")
    for number in range(2):
        Path(f"run/graph/again{number}").symlink_to(".")
    Path("run/graph/zeros").symlink_to("/dev/zero")
    Path("run/graph", name).unlink(missing_ok=True)
    Path("run/graph", name).symlink_to(Path("secret").absolute())
    result = cli("export", "run", "--out", "shared")
    if name == "letters.txt":
        assert result.status == 0, result.err
        assert sorted(path.name for path in Path("shared/graph").iterdir()) == [
            "knowledge_graph.npz",
            "meta.json",
        ]
    else:
        assert result.status == 2 and "it is a link, not a regular file" in result.err, result.err
        assert not Path("shared").exists()


@pytest.mark.fault(
    "a named pipe or a device in place of a data file", "refused with its name and type; it is never read"
)
@pytest.mark.parametrize("data", ["kg", "nodes", "links"])
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".npz", ".pt"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_data_that_are_not_regular_files_are_refused(cli, data, suffix, kind):
    path = Path(f"x{suffix}")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    model = {"kg": "knowformer", "nodes": "galit", "links": "galit"}[data]
    result = cli("fit", "--model", model, "--data", data, "--data.path", path, "--logger=csv")
    assert result.status == 2 and f"x{suffix}" in result.err, result.err


@pytest.mark.parametrize("name", ["config.yaml", "results.json", "metrics.csv", "checkpoints/best.ckpt"])
def test_a_named_pipe_in_a_run_is_not_waited_for(trained, cli, name):
    shutil.copytree(trained, "run")
    Path("run", name).unlink()
    os.mkfifo(Path("run", name))
    for command in (
        ["plot", "run", "--out", "x.html"],
        ["results", "run"],
        ["predict", "--ckpt_path", "run"],
    ):
        assert cli(*command).status in (0, 1, 2)
    assert cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=2").status in (0, 2)
