"""Folders to be shared: permissions of files, and the card of a single encoder."""

import inspect
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from graphzoo import encoders
from graphzoo.encoders import GALiT
from graphzoo.errors import UsageError
from graphzoo.inference import export_run
from graphzoo.types import GraphSpec

FORMATS = ("safetensors", "torch.export")


@pytest.mark.parametrize("name", ["GALiT", "PENCIL", "KnowFormer"])
def test_the_card_of_an_encoder_describes_it(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = GraphSpec(num_nodes=6, num_relations=2, in_channels=5, max_subgraph_nodes=8)
    encoder = getattr(encoders, name)(spec, hidden_channels=8, num_layers=3)
    card = (encoder.save_pretrained("mine") / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1]) == {
        "library_name": "graphzoo",
        "tags": ["graph", name.lower()],
    }
    for row in (f"class | `graphzoo.encoders.{name}`", "`hidden_channels` | 8", "`spec.in_channels` | 5"):
        assert f"| {row} |" in card
    assert f"| parameters | {sum(p.numel() for p in encoder.parameters())} |" in card
    code = card.split("```python\n")[1].split("```")[0]
    made, call = code.split("states = ")
    found = {}
    exec(made, found)
    assert type(found["encoder"]) is type(encoder)
    arguments = call.split("(")[1].split(")")[0].split(", ")
    assert arguments == list(inspect.signature(encoder.forward).parameters)[: len(arguments)]


def test_an_existing_card_is_not_overwritten(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        GALiT(GraphSpec(num_nodes=6, in_channels=5)).save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    """Otherwise the process would be in a folder that is gone."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is the current folder"):
        GALiT(GraphSpec(num_nodes=6, in_channels=5)).save_pretrained(".")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="has no such rights")
def test_permissions_follow_the_umask(umls_run, tmp_path):
    source = Path(shutil.copytree(umls_run.path, tmp_path / "run"))
    for file in source.rglob("*"):
        file.chmod(0o400 if file.is_file() else 0o700)
    mask = 0o027
    before = os.umask(mask)
    try:
        made = [export_run(source, tmp_path / to, to=to) for to in FORMATS]
        made.append(GALiT(GraphSpec(6, 0, 5)).save_pretrained(tmp_path / "encoder"))
    finally:
        os.umask(before)
    folders = [path for folder in made for path in (folder, *folder.rglob("*")) if path.is_dir()]
    assert len(folders) == 5 and {path.stat().st_mode & 0o777 for path in folders} == {0o777 & ~mask}, folders
    files = [path for folder in made for path in folder.rglob("*") if path.is_file()]
    found = {path.relative_to(tmp_path): oct(path.stat().st_mode & 0o777) for path in files}
    assert len(files) > 10 and set(found.values()) == {oct(0o666 & ~mask)}, found
