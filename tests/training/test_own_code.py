"""Modules of the current folder are imported only if the user names them."""

import importlib
import sys
from pathlib import Path

import pytest
from helpers.own import SMALL

from graphzoo.training.own_code import class_roots, own_code
from graphzoo.training.start import settings_of

OWN = "from helpers.own import OwnEncoder\n"
# Optional modules that Lightning, torch, pandas and others try to import.
LOOKED_FOR = [
    *("torch_xla", "habana_frameworks", "lightning_habana", "pytz", "numexpr", "bottleneck", "hpu"),
    *("deepspeed", "comet_ml", "mlflow", "neptune", "ruyaml", "_jsonnet", "argcomplete", "typeshed_client"),
    *("intel_extension_for_pytorch", "transformer_engine", "bitsandbytes", "torch_npu", "apex", "colorama"),
    *("litlogger", "litmodels", "cupy", "jax", "torch_scatter", "torch_sparse", "torch_cluster", "pyg_lib"),
]


def write_decoys(folder, names=LOOKED_FOR):
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'harmed')!r}, 'a').write({name!r} + '\\n')\n")


@pytest.mark.fault(
    "the current folder has modules that other packages try to import", "none of them is imported"
)
@pytest.mark.parametrize("own", [[], ["--trainer.callbacks+=of_the_user.Mine"]], ids=["no class", "a class"])
def test_unnamed_modules_of_the_current_folder_are_not_imported(process, tiny_kg, workplace, own):
    write_decoys(workplace)
    Path("of_the_user.py").write_text("from lightning.pytorch import Callback\nclass Mine(Callback): pass\n")
    command = ["fit", "--model", "knowformer", "--data", "kg", "--data.path", str(tiny_kg), *SMALL]
    # With -P the current folder is not on the path, as for an installed command.
    result = process(*command, "--trainer.max_epochs=1", "--run_dir=run", *own, options=["-P"])
    assert result.returncode == 0, result.stderr
    assert not Path("harmed").exists(), Path("harmed").read_text()


def test_a_named_class_may_import_modules_beside_it(fit, workplace, monkeypatch):
    """During its import and later; modules that other packages try to import are still not found."""
    for name in ("named_here", "beside_it", "much_later", "numexpr"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    write_decoys(workplace, ["numexpr"])
    Path("beside_it.py").write_text("WIDTH = 4\n")
    Path("much_later.py").write_text("WIDTH = 2\n")
    Path("named_here.py").write_text(
        f"import beside_it\n{OWN}class Mine(OwnEncoder):\n"
        "    def __init__(self, spec, *, hidden_channels: int = beside_it.WIDTH):\n"
        "        import much_later\n"
        "        super().__init__(spec, hidden_channels=hidden_channels * much_later.WIDTH)\n"
    )
    before = list(sys.path), list(sys.meta_path)
    fit("--model.encoder=named_here.Mine", "--run_dir=run", epochs=1)
    assert (list(sys.path), list(sys.meta_path)) == before
    with own_code(["--model.encoder=named_here.Mine"]), pytest.raises(ModuleNotFoundError):
        importlib.import_module("numexpr")
    assert not Path("harmed").exists()


def test_a_module_may_print_while_it_is_imported(tiny_kg, workplace, monkeypatch):
    """search, compare and ablations read the settings that the parser prints behind it."""
    monkeypatch.delitem(sys.modules, "that_prints", raising=False)
    Path("that_prints.py").write_text(f"print('{{x: [')\n{OWN}class Mine(OwnEncoder): pass\n")
    words = ["--model.encoder=that_prints.Mine", "--data=kg", f"--data.path={tiny_kg}"]
    settings = settings_of("fit", words)
    assert settings["model"]["init_args"]["encoder"]["class_path"] == "that_prints.Mine"


def test_a_class_in_a_configuration_file_is_named(fit, monkeypatch):
    monkeypatch.delitem(sys.modules, "named_in_yaml", raising=False)
    Path("named_in_yaml.py").write_text(f"{OWN}class Mine(OwnEncoder): pass\n")
    Path("mine.yaml").write_text("model: {init_args: {encoder: {class_path: named_in_yaml.Mine}}}\n")
    fit("--config", "mine.yaml", "--run_dir=run", epochs=1)
    assert "named_in_yaml" in sys.modules


def test_class_roots_are_read_from_the_command_line_and_its_files(workplace):
    Path("one.yaml").write_text("trainer: {callbacks: [{class_path: first.A}, other.yml]}\n")
    Path("other.yml").write_text("class_path: second.part.B\n")
    Path("not_mine.yaml").write_text("class_path: stranger.C\n")
    words = ["--config", "one.yaml", "-c=not_mine.yaml", "--data.path=torch_xla/some.file", "--model.lr=0.5"]
    words += ['--trainer.callbacks+={"class_path": "third.D"}']
    found = class_roots(words, without=[Path("not_mine.yaml")])
    assert {"first", "second", "third"} <= found
    assert not found & {"stranger", "torch_xla", "some"}
