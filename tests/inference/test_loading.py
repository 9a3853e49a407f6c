"""Loading checkpoints: where they are found, and refusals of damaged, hostile and unfitting ones."""

import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import graphzoo
from graphzoo.catalog import classes as registry
from graphzoo.datasets import KnowledgeGraph
from graphzoo.encoders import QueryEncoder
from graphzoo.errors import DataError, GraphzooDataWarning, UsageError
from graphzoo.inference.graphs import load_graph
from graphzoo.tasks import KGCompletion, Task


def rewrite(run, change):
    """Change the content of a run's checkpoint."""
    path = run / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, path)
    return path


def test_a_run_its_folder_and_its_file_are_the_same_model(umls, umls_run):
    query = {"head": "virus", "relation": "causes", "k": 3}
    expected = umls.predict(**query)
    for path in ("", "checkpoints", "checkpoints/best.ckpt"):
        assert graphzoo.load(umls_run.path / path).predict(**query).equals(expected)
    assert graphzoo.load(str(umls_run.path)).predict(**query).equals(expected)


def test_triples_in_memory_are_a_graph(umls, umls_run):
    graph = KnowledgeGraph.load(umls_run.path / "graph" / "knowledge_graph.npz")
    names = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.train.tolist()]
    table = pd.DataFrame(names, columns=["head", "relation", "tail"])
    questions = {"head": graph.entities[0], "relation": graph.relations[0], "k": 5, "filter_known": "keep"}
    answers = umls.predict(**questions)
    for source in (names, table, table.to_numpy()):
        found = graphzoo.load(umls_run.path, data=source).predict(**questions)
        assert list(found["tail"]) == list(answers["tail"])
        assert np.allclose(found["score"], answers["score"], atol=1e-4)
    with pytest.raises(DataError, match="row 1: expected"):
        graphzoo.load(umls_run.path, data=[("a", "b")])


def test_a_second_file_that_is_no_split_by_its_name_gives_a_warning(tmp_path, recwarn):
    """Whoever adds a file of new facts may not mean it as a split."""
    shared = tmp_path / "my valid facts"
    shared.mkdir()
    facts, new, valid = (shared / name for name in ("facts.tsv", "new.tsv", "my-dev.tsv"))
    facts.write_text("a\tr\tb\nb\tr\tc\n")
    for path in (new, valid):
        path.write_text("c\tr\ta\n")
    folder = shared / "valid"
    folder.mkdir()
    (folder / "facts.tsv").write_text("c\tr\ta\n")
    load_graph([facts, valid], None)
    load_graph([facts, folder / "facts.tsv"], None)
    assert not [warning for warning in recwarn if "is read as" in str(warning.message)]
    with pytest.warns(GraphzooDataWarning, match=r"new\.tsv is read as the valid split \(1 triple\)"):
        graph = load_graph([facts, new], None)
    assert len(graph.train) == 2 and len(graph.valid) == 1
    for other in ("arrivals.tsv", "evaluation.tsv", "devices.tsv"):  # "val" and "dev" are no words of these
        path = shutil.copy(new, shared / other)
        with pytest.warns(GraphzooDataWarning, match=f"{other} is read as the valid split"):
            load_graph([facts, path], None)


def test_the_last_checkpoint_is_loaded_without_a_best_one(copied_run):
    (copied_run / "checkpoints" / "best.ckpt").rename(copied_run / "checkpoints" / "last.ckpt")
    assert graphzoo.load(copied_run).graph.name == "umls"


def test_loading_does_not_change_the_random_state(umls_run):
    before = torch.get_rng_state()
    graphzoo.load(umls_run.path)
    assert torch.equal(before, torch.get_rng_state())


def test_a_lone_checkpoint_asks_for_data(umls, umls_run, tmp_path):
    path = shutil.copy(umls_run.path / "checkpoints" / "best.ckpt", tmp_path / "model.ckpt")
    with pytest.raises(UsageError, match=r"comes without a graph to answer on\nGive --data.path"):
        graphzoo.load(path)
    run = tmp_path / "mixture"  # a run on several graphs keeps none of them
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(path, run / "checkpoints" / "best.ckpt")
    for given, end in ((path, "in Python data=), or the run"), (run, "in Python data=)")):
        with pytest.raises(UsageError) as refused:
            graphzoo.load(given)
        assert str(refused.value).endswith(end)
    expected = umls.predict(head="virus", relation="causes")
    for data in ("umls", umls.graph):
        found = graphzoo.load(path, data=data).predict(head="virus", relation="causes")
        assert found["tail"].equals(expected["tail"])
    for data, message in (
        ("ulms", "there is no such path, and no data set.*umls"),
        (["a.txt", "b.txt"], "a.txt: no such file"),
        ([tmp_path, tmp_path], "one folder, or one to three files"),
        (["a", "b", "c", "d"], "got 4 paths"),
        (tmp_path, f"no train.txt, .*; the folder has .*{path.name}"),
    ):
        with pytest.raises(ValueError, match=message):
            graphzoo.load(path, data=data)


@pytest.mark.fault(
    "prediction from a folder without a checkpoint, or from a URL",
    "refused with what is there; only local files are read",
)
def test_paths_without_a_checkpoint_are_refused(tmp_path, umls_run, monkeypatch):
    with pytest.raises(UsageError, match="nothing: no such run directory or checkpoint file"):
        graphzoo.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"holds no checkpoint: there is no .*/checkpoints/best\.ckpt$"):
        graphzoo.load(tmp_path)
    (tmp_path / "config.yaml").write_text("# model: heuristic.cn\n")
    with pytest.raises(UsageError, match="A heuristic has none; graphzoo.heuristics scores pairs"):
        graphzoo.load(tmp_path)
    with pytest.raises(UsageError, match=r"It holds .*umls/checkpoints/best\.ckpt.*: give one of these"):
        graphzoo.load(umls_run.path.parent)
    for address in ("https://example.org/model.ckpt", "s3://bucket/model.ckpt"):
        with pytest.raises(UsageError, match="local files only"):
            graphzoo.load(address)
    # in Python, `best` is a folder as any other, not the newest run's checkpoint
    (tmp_path / "best").symlink_to(umls_run.path)
    monkeypatch.chdir(tmp_path)
    assert graphzoo.load("best").graph.name == "umls"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: b"", r"damaged.*\(0 bytes\)\nIntact checkpoints in its folder: .*last\.ckpt"),
        (
            lambda content: content[: len(content) // 2],
            r"damaged, cut off .*bytes\)\nIntact checkpoints in its folder: .*last\.ckpt",
        ),
        (lambda content: content.replace(b"relation_embedding", b"relation_embeddinG"), "damaged"),
        (lambda content: b"<html>not found</html>", "damaged, cut off or not a checkpoint"),
    ],
)
def test_damaged_files_are_refused(copied_run, spoil, message):
    path = copied_run / "checkpoints" / "best.ckpt"
    shutil.copy(path, path.with_name("last.ckpt"))
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(UsageError, match=message):
        graphzoo.load(copied_run)


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.fault("a checkpoint for prediction holds code", "refused even with --trust; no code runs")
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("place", ["state_dict", "hyper_parameters", "graphzoo"])
def test_hostile_objects_are_never_unpickled(copied_run, tmp_path, place, trust):
    victim = tmp_path / "victim"
    rewrite(copied_run, lambda checkpoint: checkpoint[place].update(extra=Hostile(str(victim))))
    with pytest.raises(UsageError, match="objects other than tensors and plain values.*mkdir"):
        graphzoo.load(copied_run, trust=trust)
    assert not victim.exists()
    with pytest.raises(FileNotFoundError):  # a trusted pickle would run the payload
        pickle.loads(pickle.dumps(Hostile(str(tmp_path / "no" / "folder"))))


@pytest.mark.fault(
    "a checkpoint for prediction names an encoder of unknown origin",
    "its module is not imported without --trust",
)
def test_classes_named_by_a_checkpoint_are_not_imported_without_trust(copied_run, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(
        "import pathlib\n"
        "from graphzoo.encoders import KnowFormer\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
        "class Stranger(KnowFormer): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rewrite(copied_run, lambda c: c["graphzoo"]["encoder"].update(class_path="stranger.Stranger"))
    with pytest.raises(
        UsageError, match=r"names the class stranger\.Stranger, which is not part of graphzoo.*trust=True"
    ):
        graphzoo.load(copied_run)
    assert not (tmp_path / "imported").exists()
    model = graphzoo.load(copied_run, trust=True)
    assert type(model.task.encoder).__name__ == "Stranger"
    # An imported class needs no trust.
    assert isinstance(graphzoo.load(copied_run).task.encoder, QueryEncoder)
    monkeypatch.delitem(sys.modules, "stranger")


def test_a_plug_in_may_be_registered_under_a_shorter_path(copied_run, tmp_path, monkeypatch):
    from importlib.metadata import EntryPoint

    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "inner.py").write_text(
        "from graphzoo.encoders import KnowFormer\nclass Plug(KnowFormer): pass\n"
    )
    (tmp_path / "plug" / "__init__.py").write_text(
        "def __getattr__(name):\n    from plug.inner import Plug\n    return Plug\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rewrite(copied_run, lambda c: c["graphzoo"]["encoder"].update(class_path="plug.inner.Plug"))
    with pytest.raises(UsageError, match=r"names the class plug\.inner\.Plug"):
        graphzoo.load(copied_run)
    entry = EntryPoint("plug", "plug:Plug", "graphzoo.encoders")
    monkeypatch.setattr(registry, "encoder_plugins", lambda: {"plug": entry})
    assert type(graphzoo.load(copied_run).task.encoder).__name__ == "Plug"
    for name in ("plug", "plug.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.fault("a checkpoint names os.system or a class that is no encoder", "refused; it is not called")
@pytest.mark.parametrize(
    ("class_path", "message"),
    [
        ("os.system", r"names the class os\.system, which is not part of graphzoo"),
        (
            "subprocess.Popen",
            r"names the class subprocess\.Popen, which is not part of graphzoo|no QueryEncoder",
        ),
        ("graphzoo.encoders.QuickFormer", "cannot be imported"),
        ("graphzoo.nowhere.KnowFormer", "cannot be imported"),
        ("graphzoo.cli.main", "not a class"),
        ("graphzoo.tasks.KGCompletion", "no QueryEncoder"),
        ("KnowFormer", "not a dotted class path"),
    ],
)
def test_classes_of_the_wrong_kind_are_refused(copied_run, class_path, message):
    rewrite(copied_run, lambda c: c["graphzoo"]["encoder"].update(class_path=class_path))
    with pytest.raises(UsageError, match=message):
        graphzoo.load(copied_run)


def test_another_task_is_refused(copied_run):
    rewrite(copied_run, lambda c: c["graphzoo"].update(task="graphzoo.encoders.KnowFormer"))
    with pytest.raises(UsageError, match="prediction is for knowledge-graph completion"):
        graphzoo.load(copied_run)


class OtherKGCompletion(KGCompletion):
    """A user's subclass of a task."""


class OtherTask(Task):
    """A user's task of another kind."""


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (OtherKGCompletion, "no usable 'relations'"),
        (OtherTask, "prediction is for .*; this is a .*OtherTask"),
    ],
)
def test_checkpoints_of_users_tasks_are_refused(copied_run, task, message):
    path = f"{task.__module__}.{task.__qualname__}"
    rewrite(copied_run, lambda c: c["graphzoo"].update(task=path, relations=None))
    with pytest.raises(UsageError, match=message):
        graphzoo.load(copied_run)


@pytest.mark.fault(
    "the settings in a checkpoint do not fit its weights", "refused with the setting and both values"
)
@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("hidden_channels", 16, 8),
        ("num_layers", 3, 1),
        ("num_query_layers", 3, 1),
        ("num_value_layers", 1, 2),
        ("query_net", False, True),
    ],
)
def test_a_setting_that_does_not_fit_is_named(copied_run, setting, wrong, right):
    rewrite(copied_run, lambda c: c["graphzoo"]["encoder"]["init_args"].update({setting: wrong}))
    with pytest.raises(
        UsageError, match=f"settings say {setting}={wrong}, but the weights are those of {setting}={right}"
    ):
        graphzoo.load(copied_run)


@pytest.mark.fault("a checkpoint was trained with another number of relations", "refused with both numbers")
def test_a_number_of_relations_that_does_not_fit_is_named(copied_run):
    rewrite(copied_run, lambda c: c["graphzoo"]["spec"].update(num_relations=45))
    with pytest.raises(UsageError, match="num_relations=45, but the weights are those of 46"):
        graphzoo.load(copied_run)


def test_other_misfits_name_the_weight(copied_run):
    def cut(checkpoint):
        weights = checkpoint["state_dict"]
        weights["encoder.relation_embedding.weight"] = weights["encoder.relation_embedding.weight"][:7]
        weights["encoder.layers.0.ffn1.weight"] = weights["encoder.layers.0.ffn1.weight"][:3]

    rewrite(copied_run, cut)
    with pytest.raises(UsageError, match=r"relation_embedding\.weight is \(7, 8\) in the file, \(92, 8\) by"):
        graphzoo.load(copied_run)


def test_missing_weights_of_the_decoder_are_named(copied_run):
    rewrite(copied_run, lambda c: c["state_dict"].pop("decoder.lin1.weight"))
    with pytest.raises(UsageError, match=r"the weights do not fit: .*decoder\.lin1\.weight"):
        graphzoo.load(copied_run)


@pytest.mark.fault(
    "a checkpoint of another version has unknown settings", "refused with the setting and that version"
)
def test_settings_of_another_version_are_refused(copied_run):
    rewrite(copied_run, lambda c: c["graphzoo"]["encoder"]["init_args"].update(rotary=True))
    with pytest.raises(UsageError, match=r"refuses the settings that graphzoo .* stored: .*rotary"):
        graphzoo.load(copied_run)


@pytest.mark.fault(
    "a checkpoint was not written by graphzoo, or its description is incomplete",
    "refused with what is missing",
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("graphzoo"), "not written by a graphzoo task"),
        (lambda c: c["graphzoo"].update(format=2), "format 2, but this graphzoo reads 1"),
        (lambda c: c["graphzoo"].update(format="one"), "format is 'one', not a whole number"),
        (lambda c: c["graphzoo"].pop("relations"), "no usable 'relations'"),
        (lambda c: c["graphzoo"].pop("encoder"), "no usable 'encoder'"),
        (lambda c: c["graphzoo"].pop("task"), "no usable 'task'"),
        (lambda c: c["graphzoo"].pop("format"), "not written by a graphzoo task"),
        (lambda c: c["graphzoo"]["encoder"].pop("class_path"), r"no usable 'encoder\.class_path'"),
        (lambda c: c["graphzoo"]["encoder"].update(init_args=[]), r"no usable 'encoder\.init_args'"),
        (lambda c: c["graphzoo"].pop("spec"), "no usable 'spec'"),
        (lambda c: c["graphzoo"]["spec"].pop("num_nodes"), r"no usable 'spec'.*num_nodes"),
        (lambda c: c["graphzoo"]["spec"].update(width=3), r"no usable 'spec'.*unknown GraphSpec fields"),
        (lambda c: c["graphzoo"].update(format=2, versions="new"), "install a newer version"),
        (lambda c: c.pop("state_dict"), "has no weights"),
    ],
)
def test_checkpoints_of_other_programs_are_refused(copied_run, change, message):
    rewrite(copied_run, change)
    with pytest.raises(UsageError, match=message):
        graphzoo.load(copied_run)


def test_devices_are_chosen_or_refused(umls_run):
    assert graphzoo.load(umls_run.path, device="auto").task.device.type in ("cpu", "cuda")
    with pytest.raises(UsageError, match="device 'gpu' is not available here"):
        graphzoo.load(umls_run.path, device="gpu")


def test_importing_graphzoo_does_not_import_torch():
    code = "import sys, graphzoo, graphzoo.cli.predict; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
