"""Folders of several runs, each claimed by one command."""

import hashlib
import json
import re

import pytest

from graphzoo.catalog.presets import find_preset
from graphzoo.errors import UsageError
from graphzoo.runs.series import claim, is_claimed, runs_of, whole_numbers

WORDS = ["--model", "galit", "--model.lr=0.1"]


@pytest.mark.parametrize(
    "options",
    [["--quiet"], ["--logger", "csv"], ["--data.root=there"], ["--trainer.enable_progress_bar", "false"]],
)
def test_a_row_continues_with_options_that_change_no_score(tmp_path, options):
    for first, then in ((WORDS, [*WORDS, *options]), ([*options, *WORDS], WORDS)):
        claim(tmp_path, {"options": first}, begun=False, what="seeds")
        claim(tmp_path, {"options": then}, begun=True, what="seeds")
    # Earlier versions wrote all options.
    (tmp_path / "command.json").write_text(json.dumps({"options": [*WORDS, *options], "files": {}}))
    assert is_claimed(tmp_path, {"options": WORDS})
    with pytest.raises(UsageError, match="holds seeds with other options"):
        claim(tmp_path, {"options": [*WORDS, "--model.dropout=0"]}, begun=True, what="seeds")


def test_a_folder_without_runs_is_claimed_again(tmp_path):
    claim(tmp_path, {"options": WORDS}, begun=False, what="seeds")
    claim(tmp_path, {"options": WORDS[:2]}, begun=False, what="seeds")
    assert is_claimed(tmp_path, {"options": WORDS[:2]})
    assert not is_claimed(tmp_path, {"options": WORDS})


@pytest.mark.parametrize("name", ["set.json", "set.conf", "own/model/mine.yaml"])
def test_a_changed_configuration_file_of_any_kind_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "own")
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    shown = name.replace("own/", "$GRAPHZOO_CONFIGS/")
    shipped = str(find_preset("model", "mlp").path)
    claim(tmp_path, {"options": WORDS}, configs=[name, shipped], begun=False, what="seeds")
    assert [*json.loads((tmp_path / "command.json").read_text())["files"]] == [shown]
    assert is_claimed(tmp_path, {"options": WORDS}, [name, shipped])
    file.write_text("{ }")
    assert not is_claimed(tmp_path, {"options": WORDS}, [name])
    with pytest.raises(UsageError, match=re.escape(f"holds seeds made before {shown} changed")):
        claim(tmp_path, {"options": WORDS}, configs=[name], begun=True, what="seeds")
    # earlier versions left out such files
    (tmp_path / "command.json").write_text(json.dumps({"options": WORDS, "files": {}}))
    claim(tmp_path, {"options": WORDS}, configs=[name], begun=True, what="seeds")


def test_an_own_preset_that_is_named_by_its_path_keeps_that_name(tmp_path, monkeypatch):
    """Records of earlier versions have it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHZOO_CONFIGS", "own")
    file = tmp_path / "own" / "recipe.yaml"
    file.parent.mkdir()
    file.write_text("{}")
    name, words = "own/recipe.yaml", [*WORDS, "--config=own/recipe.yaml"]
    old = {"options": words, "files": {name: hashlib.sha256(b"{}").hexdigest()}}
    (tmp_path / "command.json").write_text(json.dumps(old))
    claim(tmp_path, {"options": words}, configs=[name], begun=True, what="seeds")
    file.write_text("{ }")
    with pytest.raises(UsageError, match=f"holds seeds made before {name} changed"):
        claim(tmp_path, {"options": words}, configs=[name], begun=True, what="seeds")


@pytest.mark.parametrize("written", [True, False], ids=["", "of an earlier version"])
def test_a_folder_of_another_command_is_refused_before_it_has_runs(tmp_path, written):
    records = {
        "reproduce": {"options": WORDS},
        "search": {"options": WORDS, "sampler": ["tpe", 0]},
        "compare": {"options": WORDS, "models": ["mlp"]},
    }
    for command, record in records.items():
        folder = tmp_path / command
        folder.mkdir()
        claim(folder, record, begun=False, what="trials")
        path = folder / "command.json"
        content = json.loads(path.read_text())
        assert content.pop("command") == command
        if not written:
            path.write_text(json.dumps(content))
        for other in records.keys() - {command}:
            before = path.read_text()
            with pytest.raises(UsageError, match=f"is a folder of graphzoo {command}\nGive another folder"):
                claim(folder, records[other], begun=False, what="seeds")
            assert path.read_text() == before
        claim(folder, record, begun=True, what="trials")


@pytest.mark.parametrize("content", ["", "7", '"words"'])
def test_a_damaged_record_counts_once_there_are_runs(tmp_path, content):
    (tmp_path / "command.json").write_text(content)
    with pytest.raises(UsageError, match="command.json is damaged"):
        claim(tmp_path, {"options": WORDS}, begun=True, what="seeds")
    assert not is_claimed(tmp_path, {"options": WORDS})
    claim(tmp_path, {"options": WORDS}, begun=False, what="seeds")
    assert is_claimed(tmp_path, {"options": WORDS})


@pytest.mark.parametrize("text", ["0-10000", "7,0-9999", "0-4999,0-5000"])
def test_at_most_ten_thousand_numbers_are_taken(text):
    assert len(whole_numbers("0-4999,5000-9999", "--seeds")) == 10_000
    with pytest.raises(UsageError, match="more than 10,000 numbers"):
        whole_numbers(text, "--seeds")


def test_seeds_have_32_bits():
    assert [run.seed for run in runs_of("4294967295", "")] == [2**32 - 1]
    with pytest.raises(UsageError, match="from 0 to 4294967295, got 4294967296"):
        runs_of("0,4294967296", "")
