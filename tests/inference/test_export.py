"""Exported models have the answers of the run, no code and no private data, and overwrite nothing."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from helpers.node_graphs import write_npz
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import graphzoo
from graphzoo import encoders
from graphzoo.cli import main
from graphzoo.encoders import GALiT, KnowFormer, NodeFormer
from graphzoo.encoders.base import NodeEncoder
from graphzoo.errors import UsageError
from graphzoo.inference import export, export_run
from graphzoo.types import GraphSpec


@pytest.fixture(scope="module")
def exported(umls_run, tmp_path_factory):
    return export_run(umls_run.path, tmp_path_factory.mktemp("export") / "umls-model", licence="cc0-1.0")


@pytest.fixture
def copied(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "copied"))


def test_a_knowledge_graph_model_answers_as_its_run(umls_run, exported, monkeypatch):
    run = graphzoo.load(umls_run.path)
    monkeypatch.setattr(torch, "load", None)  # no pickle may be read
    model = graphzoo.load(exported)
    question = {"head": "virus", "relation": "isa", "k": 5}
    pd.testing.assert_frame_equal(model.predict(**question), run.predict(**question))
    facts = [("virus", "isa", "organism"), ("cell", "part_of", "organism")]
    assert model.score(facts).tolist() == run.score(facts).tolist()


def test_a_model_of_neighbourhoods_answers_as_its_run(near_run, tmp_path, monkeypatch):
    """A model answers in neighbourhoods. A program uses the whole graph, as its card and inputs.json say."""
    run, question = graphzoo.load(near_run.path), {"head": "virus", "relation": "isa", "k": 5}
    epoch = torch.load(near_run.path / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]
    protocol = "in neighbourhoods of 40 entities"
    found = {"metrics": near_run.metrics, "checkpoint_epoch": epoch, "protocol": protocol}
    (near_run.path / "results.json").write_text(json.dumps(found))
    model = graphzoo.load(export_run(near_run.path, tmp_path / "model"))
    assert model.task.neighbourhoods.num_nodes == 40
    pd.testing.assert_frame_equal(model.predict(**question), run.predict(**question))
    assert "The program" not in (tmp_path / "model" / "README.md").read_text()

    folder = export_run(near_run.path, tmp_path / "program", to="torch.export")
    card, note = (folder / "README.md").read_text(), "the run asks neighbourhoods of 40 nodes"
    assert f"asks the whole graph, where {note}; these scores are not its own." in card
    assert f"evaluated {protocol}" in card
    assert note in json.loads((folder / "inputs.json").read_text())["output"]
    monkeypatch.chdir(tmp_path)
    exec(card.split("```python\n")[1].split("```")[0], made := {})
    query = [torch.from_numpy(made[name]) for name in ("head", "relation")]
    for protocol, same in (("whole_graph", True), ("neighbourhood", False)):
        expected = run.task.score_queries(run._default.messages, *query, protocol=protocol)
        assert torch.allclose(torch.from_numpy(made["scores"]), expected, atol=1e-4) is same


@pytest.mark.parametrize("name", ["pencil", "galit", "knowformer"])
def test_a_link_model_scores_as_its_run(link_runs, tmp_path, name):
    run = link_runs[name]
    folder = export_run(run.path, tmp_path / "model")
    pairs = run.datamodule.graph.test.positive
    pd.testing.assert_frame_equal(graphzoo.load(folder).score(pairs), graphzoo.load(run.path).score(pairs))


def test_a_node_model_is_exported_by_the_command(tmp_path, monkeypatch, capsys):
    """The command exports a model that is used after the run and its data are deleted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private").mkdir()
    path = write_npz(tmp_path / "private/small.npz")
    small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--trainer.max_epochs=2"]
    command = ["fit", "--model=galit", "--data=nodes", f"--data.path={path}", "--logger=csv", "--run_dir=run"]
    assert main([*command, *small]) == 0
    expected = graphzoo.load("run").predict()
    assert main(["export", "run", "--out", "shared/model", "--license", "mit"]) == 0
    assert "shared/model" in capsys.readouterr().err
    shutil.rmtree("run")
    shutil.rmtree("private")
    pd.testing.assert_frame_equal(graphzoo.load("shared/model").predict(), expected)
    assert main(["predict", "--ckpt_path=shared/model", "--out=labels.csv"]) == 0
    assert pd.read_csv("labels.csv")["label"].tolist() == expected["label"].astype(int).tolist()
    content = b"".join(file.read_bytes() for file in Path("shared/model").rglob("*") if file.is_file())
    assert b"private" not in content and str(tmp_path).encode() not in content
    card = Path("shared/model/README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "mit" and "node-classification" in front["tags"]
    results = json.loads(Path("shared/model/config.json").read_text())["results"]
    assert f"| test/acc | {results['metrics']['test/acc']:.4f} |" in card and "(seed 0)" in card


def test_the_card_describes_the_exported_checkpoint(tmp_path, monkeypatch):
    """The last checkpoint was not tested, which its card says; no file names a user's large graph."""
    monkeypatch.chdir(tmp_path)
    path = write_npz(tmp_path / "small.npz")
    command = ["fit", "--model=galit", "--data=nodes", f"--data.path={path}", "--logger=csv", "--run_dir=run"]
    small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--trainer.max_epochs=9"]
    assert main([*command, *small]) == 0
    results = json.loads(Path("run/results.json").read_text())
    assert results["selection"] == "best validation"
    assert results["checkpoint_epoch"] == results["best_epoch"]
    export_run("run", "best")
    note = f"the checkpoint was chosen on validation, epoch {results['best_epoch'] + 1}."
    assert note in Path("best/README.md").read_text()
    results["checkpoint_epoch"] = 4  # the last checkpoint is of another epoch
    Path("run/results.json").write_text(json.dumps(results))
    export_run("run/checkpoints/last.ckpt", "last")
    assert "was not tested" in Path("last/README.md").read_text()
    export_run("best", "program", to="torch.export")
    assert "was not tested" not in Path("program/README.md").read_text()
    meta = json.loads(Path("run/graph/meta.json").read_text())
    meta |= {"graph": None, "path": ["/data/alice/secret.npz"]}
    Path("run/graph/meta.json").write_text(json.dumps(meta))
    export_run("run", "large")
    assert not Path("large/graph").exists() and "alice" not in Path("large/config.json").read_text()
    with pytest.raises(UsageError, match="in Python data="):
        graphzoo.load("large")
    assert len(graphzoo.load("large", data=path).predict()) == 60


def test_a_checkpoint_without_validation_is_not_called_chosen(tmp_path, monkeypatch, capsys):
    """This holds for results.json, the card, the report and a later test."""
    from graphzoo.report.results import results_section
    from graphzoo.runs.find import find_records
    from graphzoo.runs.groups import group_records

    monkeypatch.chdir(tmp_path)
    path = write_npz(tmp_path / "small.npz")
    command = ["fit", "--model=galit", "--data=nodes", f"--data.path={path}", "--logger=csv", "--run_dir=run"]
    small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--trainer.max_epochs=2"]
    assert main([*command, *small, "--trainer.limit_val_batches=0"]) == 0
    assert "last.ckpt of epoch 2, never validated" in capsys.readouterr().out
    assert main(["test", "--ckpt_path=run", "--run_dir=again", "--trainer.accelerator=cpu"]) == 0
    for run in ("run", "again"):
        results = json.loads(Path(run, "results.json").read_text())
        assert results["selection"] == "last epoch, never validated", run
        assert (results["best_epoch"], results["checkpoint_epoch"]) == (None, 1), run
    export_run("run", "shared")
    card = Path("shared/README.md").read_text()
    assert "the checkpoint is that of the last epoch, never validated, epoch 2." in card
    assert "chosen on validation" not in card
    notes = str(results_section(group_records(find_records([Path("run")]))).blocks)
    assert "Test results are from the last epoch, never validated." in notes and "best" not in notes
    # Earlier versions stored the epoch of any checkpoint as `best_epoch`.
    results = json.loads(Path("run/results.json").read_text())
    del results["selection"], results["checkpoint_epoch"]
    Path("run/results.json").write_text(json.dumps(results | {"best_epoch": 1}))
    export_run("run", "older")
    assert "the last epoch, never validated, epoch 2." in Path("older/README.md").read_text()
    assert find_records([Path("run")])[0].best_epoch is None


def test_an_encoder_is_loaded_from_an_exported_model(exported, umls_run):
    run = graphzoo.load(umls_run.path)
    encoder = KnowFormer.from_pretrained(exported)
    expected = run.task.encoder
    assert encoder.init_args == expected.init_args and encoder.spec == expected.spec and not encoder.training
    for name, value in expected.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], value), name
    with pytest.raises(UsageError, match="holds a graphzoo.encoders.KnowFormer, no GALiT"):
        GALiT.from_pretrained(exported)


NODE_ENCODERS = [
    name for name in encoders.__all__ if isinstance(cls := getattr(encoders, name), type)
    and issubclass(cls, NodeEncoder) and cls is not NodeEncoder
]  # fmt: skip


@pytest.mark.parametrize("name", NODE_ENCODERS)
def test_encoders_are_saved_and_loaded(tmp_path, name):
    torch.manual_seed(1)
    spec = GraphSpec(num_nodes=6, in_channels=5, num_classes=2)
    encoder = getattr(encoders, name)(spec, hidden_channels=8).eval()
    folder = encoder.save_pretrained(tmp_path / "saved")
    state = torch.random.get_rng_state()
    again = NodeEncoder.from_pretrained(folder)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state is left alone"
    assert type(again) is type(encoder) and again.init_args == encoder.init_args
    x, edges = torch.randn(6, 5), torch.tensor([[0, 1, 2, 3, 4, 5, 1, 2], [1, 2, 3, 4, 5, 0, 0, 1]])
    assert torch.equal(again(x, edges), encoder(x, edges))
    with pytest.raises(UsageError, match="exists already"):
        encoder.save_pretrained(folder)


def _without(name):
    return lambda folder: (folder / name).unlink()


def _settings(change):
    def apply(folder):
        path = folder / "config.json"
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    return apply


def _weights(change):
    def apply(folder):
        path = folder / "model.safetensors"
        found = load_file(path)
        change(found)
        save_file(found, path)

    return apply


def _cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


FAULTS = {
    "no-weights": (_without("model.safetensors"), "holds no"),
    "no-settings": (_without("config.json"), "config.json cannot be used: No such file"),
    "cut-off": (_cut, "model.safetensors is damaged"),
    "no-json": (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be used"),
    "no-object": (lambda folder: (folder / "config.json").write_text("[]"), "no `graphzoo` entry"),
    "deep": (lambda folder: (folder / "config.json").write_text("[" * 100_000), "config.json cannot be used"),
    "format": (_settings(lambda found: found.update(format=99)), "format 99, but this graphzoo reads 1"),
    "stranger": (
        _settings(lambda found: found["graphzoo"]["encoder"].update(class_path="os.system")),
        "names the class os.system",
    ),
    "width": (
        _settings(lambda found: found["graphzoo"]["encoder"]["init_args"].update(hidden_channels=16)),
        "hidden_channels=16, but the weights are those of hidden_channels=",
    ),
    "odd-settings": (_settings(lambda found: found.update(hyper_parameters=[1])), "is not a mapping"),
    "odd-exported": (_settings(lambda found: found.update(exported=[1])), "`exported` is not a mapping"),
    "odd-setting": (
        _settings(lambda found: found["hyper_parameters"].update(loss=["x"])),
        "the settings of the task cannot be used",
    ),
    "lost-weight": (_weights(lambda found: found.pop(next(iter(found)))), "weights do not fit"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damaged_and_hostile_folders_are_refused(copied, fault):
    break_, message = FAULTS[fault]
    break_(copied)
    with pytest.raises(UsageError) as caught:
        graphzoo.load(copied)
    assert message in str(caught.value), str(caught.value)
    assert len(str(caught.value).splitlines()) <= 4


def test_wrong_settings_of_an_encoder_are_refused(tmp_path):
    folder = NodeFormer(GraphSpec(num_nodes=4, in_channels=3), hidden_channels=8).save_pretrained(
        tmp_path / "a"
    )
    _settings(lambda found: found["graphzoo"]["encoder"]["init_args"].update(num_layers=3))(folder)
    with pytest.raises(UsageError, match="settings and weights do not make a graphzoo.encoders.NodeFormer"):
        NodeFormer.from_pretrained(folder)
    _settings(lambda found: found["graphzoo"].pop("spec"))(folder)
    with pytest.raises(UsageError, match="describes no encoder"):
        NodeFormer.from_pretrained(folder)


def test_an_encoder_is_loaded_from_the_hub(exported, monkeypatch, tmp_path):
    """Only the files of an exported folder are fetched."""
    fetched = []

    def fetch(name, *, allow_patterns):
        fetched.append((name, allow_patterns))
        if name != "user/umls":
            raise OSError("404 Client Error. Repository Not Found")
        return str(exported)

    hub = SimpleNamespace(snapshot_download=fetch)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    found = KnowFormer.from_pretrained("user/umls")
    expected = KnowFormer.from_pretrained(exported)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), expected.parameters(), strict=True))
    assert fetched == [("user/umls", ["model.safetensors", "config.json", "README.md", "graph/*"])]
    with pytest.raises(
        UsageError, match="no folder user/other, and the Hugging Face Hub has none to fetch: 404"
    ):
        KnowFormer.from_pretrained("user/other")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"pip install 'graphzoo\[hub\]'"):
        KnowFormer.from_pretrained("user/umls")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(exported, "user/umls")  # a local folder of this name is preferred
    KnowFormer.from_pretrained("user/umls")


def test_existing_files_and_wrong_arguments_are_refused(exported, umls_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    wrong = {
        ("export", str(umls_run.path), "--out", "full"): "full exists already",
        ("export", str(umls_run.path)): "required: --out",
        ("export", str(umls_run.path), "--out", "a", "--to", "safetensor"): "Did you mean: safetensors",
        ("export", str(umls_run.path), "--out", "a", "--too", "b"): "unknown option --too",
        ("export", "nowhere", "--out", "a"): "nowhere: no such run directory",
        ("export", str(umls_run.path), "--out", "full/notes.txt/a"): "cannot be written: Not a directory",
        ("export", str(umls_run.path), "--out", "link"): "link exists already",
        ("export", str(exported), "--out", "a"): "is exported already",
        ("fit", "--ckpt_path", str(exported)): "holds only weights, no data\nAdd --data NAME",
        ("test", "--ckpt_path", str(exported)): "holds only weights, no data\nAdd --data NAME",
    }
    for words, message in wrong.items():
        assert main(list(words)) == 2, words
        err = capsys.readouterr().err
        assert message in err and len(err.splitlines()) <= 6, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "link"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_failed_export_leaves_no_files(umls_run, tmp_path, monkeypatch, error):
    import safetensors.torch

    def full(*_, **__):
        raise error

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(UsageError, match=r"model cannot be written: .*No space left"):
        export_run(umls_run.path, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_for_temporary_files_is_named(umls_run, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "copy_regular", full)
    with pytest.raises(UsageError, match="no room for a copy of the run's graph: No space left.*\n.*TMPDIR"):
        export_run(umls_run.path, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def both_ends(umls_run, tmp_path):
    """A run with `reverse_weight` 0.4, which scores queries in both directions."""
    run = Path(shutil.copytree(umls_run.path, tmp_path / "both-ends"))
    file = run / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["hyper_parameters"]["reverse_weight"] = 0.4
    torch.save(checkpoint, file)
    found = {"metrics": {"test/mrr": 0.9}, "checkpoint_epoch": checkpoint["epoch"], "seed": 0}
    (run / "results.json").write_text(json.dumps(found))
    return run


@pytest.mark.parametrize("tested", [True, False])
@pytest.mark.parametrize(
    ("options", "weight", "note", "untested"),
    [
        (
            [],
            0.4,
            "It scores queries in both directions (`reverse_weight` 0.4), as in this test.",
            "It scores queries in both directions (`reverse_weight` 0.4).",
        ),
        (
            ["--reverse-weight", "0"],
            0.0,
            "0.4); the exported model scores forward queries.",
            "scores forward queries, where",
        ),
        (
            ["--reverse-weight=0.2"],
            0.2,
            "0.4); the exported model scores queries in both directions",
            "0.2), where the run scores",
        ),
    ],
)
def test_an_export_has_the_given_reverse_weight(both_ends, tmp_path, tested, options, weight, note, untested):
    """The model has the given `reverse_weight`, and the card says if its scores are of another one."""
    if not tested:
        (both_ends / "results.json").unlink()
    assert main(["export", str(both_ends), "--out", str(tmp_path / "out"), *options]) == 0
    model, run = graphzoo.load(tmp_path / "out"), graphzoo.load(both_ends)
    run.task.reverse_weight = weight
    assert model.task.reverse_weight == weight
    question = {"head": "virus", "relation": "isa", "k": 5}
    pd.testing.assert_frame_equal(model.predict(**question), run.predict(**question))
    card = (tmp_path / "out" / "README.md").read_text()
    assert (note if tested else untested) in card and ("not tested" in card) is not tested


@pytest.mark.parametrize("tested", [True, False])
def test_an_export_of_an_export_keeps_what_is_known_of_the_run(both_ends, tmp_path, tested):
    if not tested:
        (both_ends / "results.json").unlink()
    first = export_run(both_ends, tmp_path / "first", reverse_weight=0.2, licence="mit")
    second = export_run(first, tmp_path / "second", reverse_weight=0.0)
    program = export_run(second, tmp_path / "program", to="torch.export")
    assert graphzoo.load(second).task.reverse_weight == 0
    of_test = "(`reverse_weight` 0.4); the exported model scores forward queries."
    for folder in (second, program):
        card = (folder / "README.md").read_text()
        assert (of_test if tested else "directions (`reverse_weight` 0.4)") in card
        assert 'license: "mit"' in card


def test_an_export_of_changed_weights_says_so_when_it_is_exported_again(both_ends, tmp_path):
    weights = torch.load(both_ends / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    weights = {name: weight + 1 for name, weight in weights.items()}
    first = export_run(both_ends, tmp_path / "first", weights=weights)
    second = export_run(first, tmp_path / "second", licence="mit")
    assert "Its weights were changed after the training." in (second / "README.md").read_text()


def test_a_program_scores_forward_queries_only(both_ends, umls, tmp_path, monkeypatch):
    """Its scores are those of the run with `reverse_weight` 0, not those of the run."""
    with pytest.raises(UsageError, match="for forward queries with --reverse-weight 0"):
        export_run(both_ends, tmp_path / "refused", to="torch.export")
    folder = export_run(both_ends, tmp_path / "program", to="torch.export", reverse_weight=0.0)
    assert "the exported model scores forward queries" in (folder / "README.md").read_text()
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)  # the example in the card expects the folder in the current one
    exec(code, found := {})
    head, relation = int(found["head"][0]), int(found["relation"][0])
    names, relations = umls.graph.entities, umls.graph.relations
    run = graphzoo.load(both_ends)
    for weight, same in ((0.0, True), (0.4, False)):
        run.task.reverse_weight = weight
        table = run.predict(head=names[head], relation=relations[relation], k=len(names))
        scores = dict(zip(table["tail"], table["score"], strict=True))
        expected = torch.tensor([scores[name] for name in names])
        assert torch.allclose(torch.from_numpy(found["scores"][0]), expected, atol=1e-4) is same


@pytest.mark.parametrize(
    ("weight", "message"),
    [("-1", "at least 0, got '-1'"), ("nan", "at least 0, got 'nan'"), ("much", "at least 0, got 'much'")],
)
def test_a_wrong_reverse_weight_is_refused(both_ends, tmp_path, capsys, weight, message):
    assert main(["export", str(both_ends), "--out", str(tmp_path / "out"), "--reverse-weight", weight]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_format_is_refused(umls_run, tmp_path):
    with pytest.raises(UsageError, match="safetensors, torch.export, onnx, got 'pickle'"):
        export_run(umls_run.path, tmp_path / "out", to="pickle")


def test_reverse_weight_is_refused_for_other_tasks(link_runs, tmp_path):
    with pytest.raises(UsageError, match="is for knowledge graphs; this is a LinkPrediction\nLeave it out"):
        export_run(link_runs["galit"].path, tmp_path / "out", reverse_weight=0.0)


def test_the_card_says_if_no_metric_is_defined(umls_run, tmp_path):
    run = Path(shutil.copytree(umls_run.path, tmp_path / "one-class"))
    epoch = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]
    (run / "results.json").write_text(
        json.dumps({"metrics": {"test/auroc": None}, "checkpoint_epoch": epoch})
    )
    card = (export_run(run, tmp_path / "shared") / "README.md").read_text()
    assert "No metric is defined on its test split" in card and "was not tested" not in card
