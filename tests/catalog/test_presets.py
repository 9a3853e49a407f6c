"""A typed name finds a preset, or a short error with the nearest names."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphzoo.catalog.presets import KINDS, find_preset, list_presets
from graphzoo.errors import UsageError, nearest, normalise

NAMES = [(kind, preset.name.rpartition("/")[2]) for kind in KINDS for preset in list_presets(kind)]


@settings(max_examples=30)
@given(kind=st.sampled_from(KINDS), name=st.text(max_size=40))
@example(kind="data", name="../../etc/passwd")
@example(kind="data", name="\0")
@example(kind="model", name="x" * 100_000)
@example(kind="model", name="a\nb\n" * 50)
def test_any_name_is_found_or_refused(kind, name):
    try:
        assert normalise(find_preset(kind, name).name) == normalise(name)
    except UsageError as error:
        text = str(error)
        assert len(text.splitlines()) <= 6 and len(text) < 3000


@settings(max_examples=30)
@given(named=st.sampled_from([named for named in NAMES if len(named[1]) > 4]), data=st.data())
def test_a_name_with_one_wrong_letter_is_suggested(named, data):
    """A wrong digit would be as near to another version of the data."""
    kind, name = named
    place = data.draw(st.sampled_from([i for i in range(1, len(name)) if not name[i].isdigit()]))
    typed = name[:place] + data.draw(st.sampled_from("qxzj")) + name[place + 1 :]
    choices = [preset.name.rpartition("/")[2] for preset in list_presets(kind)]
    assert name in nearest(typed, choices, count=3)


@settings(max_examples=30)
@given(name=st.sampled_from([name for kind, name in NAMES if kind == "data"]), data=st.data())
def test_case_and_separators_do_not_matter(name, data):
    typed = "".join(data.draw(st.sampled_from([c.lower(), c.upper(), c + "_"])) for c in name)
    assert find_preset("data", typed).name == name


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "data/../model/galit"])
@pytest.mark.fault("the name of a preset is a path", "no file outside the preset folders is read")
def test_paths_are_not_names(name):
    with pytest.raises(UsageError, match="unknown data"):
        find_preset("data", name)


def test_an_ablation_of_another_model_is_found_by_its_full_name():
    assert find_preset("ablation", "pencil/heuristics", model="gat-pair-id").name == "pencil/heuristics"
    with pytest.raises(UsageError, match=r"unknown ablation of pencil 'heuristic'\nDid you mean: heuristics"):
        find_preset("ablation", "pencil/heuristic", model="gat-pair-id")
    assert find_preset("ablation", "PENCIL/heuristics", model="gcn").name == "pencil/heuristics"
    with pytest.raises(UsageError, match=r"unknown ablation of sgc 'parts'\n`graphzoo list ablation` shows"):
        find_preset("ablation", "parts", model="sgc")
    with pytest.raises(UsageError, match="unknown recipe of gat-pair-id 'pencil/citeseer-link'"):
        find_preset("recipe", "pencil/citeseer-link", model="gat-pair-id")


def test_what_an_editor_leaves_beside_a_preset_is_no_preset(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# title: mine\n")
    (folder / ".#mine.yaml").symlink_to("user@host.1234")
    (folder / ".mine.yaml").write_text("")
    (folder / "gone.yaml").symlink_to("nowhere.yaml")
    (folder / "old.yaml").mkdir()
    monkeypatch.setenv("GRAPHZOO_CONFIGS", str(tmp_path))
    own = [preset.name for preset in list_presets("model") if preset.path.is_relative_to(tmp_path)]
    assert own == ["mine"]
