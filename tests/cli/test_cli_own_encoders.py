"""Encoders of users: their settings in a checkpoint, two paths of one class, and error messages."""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch_geometric.data import Data

from graphzoo.catalog import classes
from graphzoo.catalog.classes import (
    arguments_of,
    defaults_of,
    is_same_class,
    is_trusted,
    load_class,
    spec_problem,
)
from graphzoo.checkpoints.settings import plain_form
from graphzoo.datamodules import NodeDataModule
from graphzoo.errors import UsageError
from graphzoo.tasks import NodeClassification
from graphzoo.training.plan import make_plan
from graphzoo.types import GraphSpec

PACKAGE = {
    "short/__init__.py": "from short.enc import Kind, Smooth\n",
    "short/enc.py": """
import enum
import torch
from graphzoo.encoders import GALiT, NodeEncoder
from graphzoo.types import GraphSpec
from torch import nn


class Kind(enum.Enum):
    A = "a"
    B = "b"


class Smooth(GALiT):
    def __init__(self, spec, *, sizes: tuple[int, ...] = (4, 8), more=None, **settings):
        self.odd = more or {1: (2, float("nan")), "kind": torch.float32}
        super().__init__(spec, **settings)


class Named(NodeEncoder):
    def __init__(self, spec, *, kind: Kind = Kind.A):
        super().__init__()
        self.spec, self.out_channels = spec, 4
        self.map = nn.Linear(spec.in_channels, 4)

    def forward(self, x, edge_index=None, **_):
        return self.map(x)


class Sized(Smooth):
    def __init__(self, spec, *, width: int, num_rounds: int = 2):
        super().__init__(spec, hidden_channels=width)


class Wide(Smooth):
    def __init__(self, spec, width: int):
        super().__init__(spec, hidden_channels=width)


class Untyped(Smooth):
    def __init__(self, spec, *, width, depth=1):
        super().__init__(spec, hidden_channels=width, num_layers=depth)


class NoSpec(Named):
    def __init__(self, width: int = 8):
        super().__init__(GraphSpec(6, in_channels=3))


class SpecLast(Named):
    def __init__(self, width: int, spec: GraphSpec):
        super().__init__(spec)


class NoArgument(Named):
    def __init__(self, *, width: int = 8):
        super().__init__(GraphSpec(6, in_channels=3))


class Broken(Smooth):
    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        if settings.get("num_layers") == 1:
            self.nothing = self.nowhere
""",
}
QUICK = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--run_dir=run"]


@pytest.fixture
def package(workplace, monkeypatch):
    """A package on the path, which registers its class by the path of a re-export."""
    folder = workplace / "lib"
    for name, text in PACKAGE.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    entry = EntryPoint("short", "short:Smooth", classes.ENCODER_GROUP)
    monkeypatch.setattr(classes, "entry_points", lambda group: [entry])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "short"]:
        del sys.modules[name]


@pytest.fixture
def nodes(tiny_nodes):
    return ["--data=nodes", f"--data.path={tiny_nodes}"]


def test_a_class_that_is_registered_by_a_re_export_is_tested_and_resumed(cli, package, nodes):
    """Its settings include a tuple, a list in config.yaml, and those of its parent through `**settings`."""
    done = cli("fit", "--model=short", "--model.encoder.sizes=[2,3]", *nodes, *QUICK)
    assert done.status == 0, done.err
    assert (tested := cli("test", "run", "--run_dir=tested")).status == 0, tested.err
    assert (resumed := cli("fit", "run", "--trainer.max_epochs=2")).status == 0, resumed.err
    assert (exported := cli("export", "run", "--out=weights")).status == 0, exported.err
    assert (again := cli("test", "--ckpt_path=weights", *nodes, "--run_dir=again")).status == 0, again.err
    other = cli("fit", "run", "--trainer.max_epochs=3", "--model.encoder.sizes=[2,4]")
    assert other.status == 2 and "--model.encoder.sizes: [2, 3] in the checkpoint, [2, 4] now" in other.err


def test_both_paths_of_a_plug_in_are_trusted_and_no_other_class(package):
    assert is_trusted("short.Smooth") and is_trusted("short.enc.Smooth")
    assert is_same_class("short.Smooth", "short.enc.Smooth")
    assert not is_same_class("short.enc.Named", "short.enc.Smooth")
    assert not is_trusted("short.enc.Kind") and not is_trusted("short.nowhere.Smooth")


def test_settings_that_cannot_be_saved_are_refused_before_training(cli, package, nodes, workplace):
    done = cli("fit", "--model.encoder=short.enc.Named", "--model.encoder.kind=B", *nodes, *QUICK)
    assert done.status == 2, done.err
    assert "Named: kind has a Kind, which a checkpoint cannot store" in done.err
    assert not (workplace / "run").exists()


def test_settings_that_cannot_be_saved_work_without_checkpoints(package):
    """Fits without checkpoints and validation accept them; a later fit with checkpoints does not."""
    enc = import_module("short.enc")
    Kind, Named = enc.Kind, enc.Named
    graph = Data(x=torch.randn(6, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1] * 3))
    data = NodeDataModule.from_data(graph)
    task = NodeClassification(lambda spec: Named(spec, kind=Kind.B))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet).fit(task, data)
    assert task.encoder.init_args == {"kind": Kind.B}
    assert Trainer(accelerator="cpu", **quiet).validate(task, data, verbose=False)
    with pytest.raises(UsageError, match="Named: kind has a Kind"):
        Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(task, data)


@pytest.mark.parametrize("name", ["NoSpec", "NoArgument", "SpecLast"])
def test_an_encoder_that_a_checkpoint_could_not_build_is_refused_before_training(package, name):
    def make(spec):
        own = getattr(import_module("short.enc"), name)
        return own(width=4, spec=spec) if name == "SpecLast" else own(width=4)

    graph = Data(x=torch.randn(6, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1] * 3))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    with pytest.raises(UsageError, match=f"is a GraphSpec, but {name}.__init__ takes"):
        Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(
            NodeClassification(make), NodeDataModule.from_data(graph)
        )


def test_arguments_include_those_of_parents_that_get_keywords():
    class First:
        def __init__(self, spec, *, width=8, depth=2, **more):
            pass

    class Second(First):
        def __init__(self, spec, *, scale=1.0, width=16, **others):
            super().__init__(spec, width=width, **others)

    class Third(Second):
        """A subclass without `__init__`."""

    assert defaults_of(Third) == {"scale": 1.0, "width": 16, "depth": 2}
    assert [each.name for each in arguments_of(Third)] == ["spec", "scale", "width", "depth", "more"]

    class Closed(Second):
        def __init__(self, spec, *, others=3):
            super().__init__(spec)

    assert defaults_of(Closed) == {"others": 3}
    task = {each.name for each in arguments_of(OwnTask)}
    assert {"smooth", "lr", "class_weights"} <= task


class OwnTask(NodeClassification):
    def __init__(self, encoder, *, smooth=0.1, **settings):
        super().__init__(encoder, **settings)


def test_settings_are_compared_in_plain_form():
    form = {"a": (1, 2), 3: [float("nan")], "kind": torch.float32, "names": {"b", "a"}}
    read = {"a": [1, 2], "3": ["nan"], "kind": "torch.float32", "names": ["a", "b"]}
    assert plain_form(form) == plain_form(read) == read
    assert plain_form({"a": (1, 3)}) != plain_form({"a": [1, 2]})


def test_a_name_with_a_dot_has_models_as_suggestions(cli):
    result = cli("compare", "--data=cora-link", "--models=heuristic.adamic_adr;mlp", "--minutes=1")
    assert result.status == 2 and "Did you mean: heuristic.aa" in result.err


def test_a_broken_plug_in_is_named_with_its_class(cli, package, nodes, workplace):
    assert cli("fit", "--model=short", *nodes, *QUICK).status == 0
    (workplace / "lib" / "short" / "__init__.py").write_text("import nowhere_to_be_found\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "short"]:
        del sys.modules[name]
    result = cli("predict", "--ckpt_path=run", "--out=nodes.csv")
    assert result.status == 2
    assert "short.enc.Smooth cannot be imported: No module named 'nowhere_to_be_found'" in result.err
    assert is_trusted("short.Smooth") and not is_trusted("short.enc.Other")
    assert "short" not in sys.modules


def test_an_error_in_the_constructor_of_an_encoder_is_shown(cli, package, nodes):
    command = ["fit", "--model.encoder=short.enc.Broken", "--model.encoder.num_layers=2", *nodes, *QUICK]
    assert (done := cli(*command)).status == 0, done.err
    enc = import_module("short.enc")

    def fails(self, spec, *, sizes=(4, 8), **settings):
        self.nowhere  # noqa: B018

    enc.Broken.__init__ = fails
    result = cli("predict", "--ckpt_path=run", "--out=nodes.csv")
    assert result.status == 2
    assert "short.enc.Broken cannot be built: AttributeError: 'Broken' object has no attribute" in result.err


def test_a_module_of_the_current_folder_is_named_with_the_remedy(cli, package, nodes, workplace, monkeypatch):
    command = ["fit", "--model.encoder=short.enc.Smooth", *nodes, *QUICK]
    assert (done := cli(*command)).status == 0, done.err
    (workplace / "lib" / "short").rename(workplace / "short")
    monkeypatch.setattr(classes, "entry_points", lambda group: [])
    for name in [name for name in sys.modules if name.partition(".")[0] == "short"]:
        del sys.modules[name]
    result = cli("predict", "--ckpt_path=run", "--out=nodes.csv", "--trust")
    assert result.status == 2 and "short is in the current folder: set PYTHONPATH=." in result.err
    (workplace / "short").rename(workplace / "gone")
    result = cli("test", "run", "--run_dir=tested", "--trust")
    assert result.status == 2 and "It cannot be imported: No module named 'short'" in result.err


def test_data_by_class_path_need_task_and_encoder(cli):
    result = cli("fit", "--model=galit", "--data=mine.MyData")
    assert result.status == 2
    assert "--data mine.MyData is a class: neither it nor --model NAME says which task" in result.err
    assert "--model graphzoo.tasks.LinkPrediction or graphzoo.tasks.NodeClassification" in result.err
    assert "--model.encoder graphzoo.encoders.GALiT" in result.err


def test_a_preset_with_a_task_works_with_data_by_class_path(workplace, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "presets")
    file = workplace / "presets" / "model" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("model:\n  class_path: graphzoo.tasks.KGCompletion\n  init_args:\n    encoder: own.Net\n")
    command = ["--model=mine", "--data=graphzoo.datamodules.KGDataModule"]
    assert make_plan("fit", command).model == "mine"
    file.write_text("model:\n  init_args:\n    encoder: own.Net\n")
    with pytest.raises(UsageError, match=r"--model\.encoder own\.Net"):
        make_plan("fit", command)


def test_a_plug_in_is_trusted_without_other_classes_of_its_package(workplace, monkeypatch):
    """A plug-in with an alias is found by its class, and a broken one does not affect others."""
    folder = workplace / "lib" / "pk"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "impl.py").write_text("class Impl: pass\n")
    (folder / "named.py").write_text("from pk.impl import Impl as Alias\n")
    (folder / "broken.py").write_text("import nowhere_to_be_found\n")
    (folder / "good.py").write_text("class Enc: pass\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    entries = [EntryPoint(name, value, classes.ENCODER_GROUP) for name, value in (
        ("alias", "pk.named:Alias"), ("broken", "pk.broken:Enc"),
    )]  # fmt: skip
    monkeypatch.setattr(classes, "entry_points", lambda group: entries)
    try:
        assert load_class("pk.impl.Impl", "f").__name__ == "Impl"
        with pytest.raises(
            UsageError, match="pk.good.Enc cannot be imported: No module named 'nowhere_to_be"
        ):
            load_class("pk.good.Enc", "f")
        assert load_class("pk.good.Enc", "f", trust=True).__module__ == "pk.good"
        with pytest.raises(UsageError, match="f: pk.broken.Enc cannot be imported: No module named"):
            load_class("pk.broken.Enc", "f")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "pk"]:
            del sys.modules[name]


def test_compare_needs_a_name_for_a_class(cli):
    result = cli("compare", "--data=cora", "--models=smoothing.Smoothing;mlp", "--minutes=1")
    assert result.status == 2 and "write a preset (GRAPHZOO_CONFIGS), or register a plug-in" in result.err


def test_an_option_that_the_class_lacks_is_named_with_its_file(cli, package, nodes, workplace):
    assert cli("fit", "--model=short", "--model.encoder.sizes=[2,3]", *nodes, *QUICK).status == 0
    file = workplace / "lib" / "short" / "enc.py"
    file.write_text(file.read_text().replace("*, sizes: tuple[int, ...] = (4, 8), ", ""))
    for name in [name for name in sys.modules if name.partition(".")[0] == "short"]:
        del sys.modules[name]
    result = cli("test", "run", "--run_dir=tested")
    assert result.status == 2 and "config.yaml: unknown setting model.encoder.sizes" in result.err
    assert "run/config.yaml" in result.err and "/tmp" not in result.err.replace(str(workplace), "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["short.enc.Sized"], "'short.enc.Sized' does not fit\nIt needs --model.encoder.width\n"),
        (["short.enc.Wide"], "'short.enc.Wide' does not fit\nIt needs --model.encoder.width\n"),
        (["short.enc.Sized", "--model.encoder.num_round=3"], "Did you mean: --model.encoder.num_rounds?"),
        (["short/enc.py"], "Give the path of a class as in an import, such as package.module.Class\n"),
        (["short.enc.Siz"], "short.enc has no 'Siz'. Did you mean: Sized?\n"),
        (["short.enc.file"], "short.enc has no 'file'.\n"),  # but __file__
        (["short.enc.Untyped"], "short.enc.Untyped needs --model.encoder.width\nGive it, or write a default"),
        (
            ["short.enc.NoSpec"],
            "is a GraphSpec, but NoSpec.__init__ takes width first\n",
        ),
        (
            ["short.enc.SpecLast", "--model.encoder.width=8"],
            "is a GraphSpec, but SpecLast.__init__ takes wid",
        ),
        (["short.enc.SpecLast"], "'short.enc.SpecLast' does not fit\nthe first argument of an encoder is a"),
        (
            ["short.enc.NoArgument"],
            "a GraphSpec, but NoArgument.__init__ takes none\nWrite def __init_",
        ),
    ],
)
def test_what_is_wrong_with_the_class_of_an_encoder(cli, package, nodes, given, message):
    path, *more = given
    result = cli("fit", f"--model.encoder={path}", *more, *nodes, *QUICK)
    assert result.status == 2 and message in result.err, result.err


def test_a_setting_without_a_type_can_be_given(cli, package, nodes):
    named = ["--model.encoder=short.enc.Untyped", "--model.encoder.width=8"]
    done = cli("fit", *named, *nodes, *QUICK)
    assert done.status == 0, done.err


def test_the_first_argument_of_an_encoder_may_be_the_spec_under_any_name():
    def problem(init):
        return spec_problem(type("Made", (), {"__init__": init}))

    taking = [
        lambda self, spec=None: None,
        lambda self, sizes: None,
        lambda self, *args, **settings: None,
    ]
    assert [problem(init) for init in taking] == ["", "", ""]

    def typed(self, sizes: GraphSpec | None = None, /): ...
    def quoted(self, sizes: "GraphSpec"): ...
    def anything(self, sizes: Any): ...
    def base(self, sizes: object): ...
    def either(self, sizes: "GraphSpec | int"): ...
    def alias(self, sizes: "Sizes"): ...  # noqa: F821
    def optional(self, sizes: "Sizes" = None): ...  # noqa: F821

    assert not any(map(problem, (typed, quoted, anything, base, either, alias, optional)))

    def width(self, width: int, spec: GraphSpec): ...
    def postponed(self, width: "int | None"): ...
    def default(self, width=8): ...
    def keywords(self, **settings): ...

    assert all("takes width first" in problem(init) for init in (width, postponed, default))
    assert "takes none" in problem(keywords)
