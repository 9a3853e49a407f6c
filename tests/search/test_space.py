"""Search spaces: their files, the values that they contain, and the configuration made of options."""

import random
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from graphzoo.catalog.presets import list_presets
from graphzoo.errors import UsageError
from graphzoo.search.compare import _value
from graphzoo.search.space import Choice, Range, Space, nested, read_space


def write(folder, text):
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_space_is_read(tmp_path):
    text = "space:\n  model.lr: {low: 0.001, high: 0.1, log: true}\n  model.encoder.num_layers: [1, 2]\n"
    text += (
        "  data.batch_size: {low: 10, high: 30, step: 10}\n  model.dropout: {low: 0, high: 0.5, step: 0.1}\n"
    )
    text += "options:\n  trainer.max_epochs: 5\n"
    space = read_space(write(tmp_path, text))
    assert space.choices == {
        "model.lr": Range(0.001, 0.1, log=True),
        "model.encoder.num_layers": Choice((1, 2)),
        "data.batch_size": Range(10, 30, step=10),
        "model.dropout": Range(0, 0.5, step=0.1),
    }
    assert space.options == {"trainer.max_epochs": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no search space"),
        ("space: {}", "has no search space"),
        ("- 1", "has no search space"),
        ("space: {model.lr: [1]}\nmore: 1", "unknown entry 'more'"),
        ("space: {lr: [1]}", "'lr' is not an option"),
        ("space: {model.: [1]}", "'model.' is not an option"),
        ("space: {model.init_args: [1]}", "'model.init_args' is not an option"),
        ("space: {data.batch_size: {low: 1, high: 3, step: 0.5}}", "step must be whole, too"),
        ("space: {model.lr: []}", "model.lr is []"),
        ("space: {model.lr: 3}", "model.lr is 3"),
        ("space: {model.lr: [[1]]}", "only numbers and texts"),
        ("space: {model.lr: {low: 1}}", "model.lr is {'low': 1}"),
        ("space: {model.lr: {low: 2, high: 1}}", "low must be below high"),
        ("space: {model.lr: {low: 0, high: 1, log: true}}", "low must be above 0"),
        ("space: {model.lr: {low: 0, high: 1, step: 0}}", "step above 0"),
        ("space: {model.lr: {low: 0, high: .inf}}", "model.lr is"),
        ("space: {model.lr: {low: a, high: b}}", "model.lr is"),
        ("space: {model.lr: {low: 1, high: 2, log: yes please}}", "log must be true or false"),
        ("space: {data.batch_size: {low: 1, high: 3, step: 5}}", "Its step is too large"),
        ("space: {model.lr: [1]}\noptions: [1]", "`options` has to be a mapping"),
        ("space: {model.lr: [1]}\noptions: {model.lr: 2}", "is in both `space` and `options`"),
    ],
)
def test_wrong_spaces_are_refused(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_space(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "inside", "outside"),
    [
        (Choice((1, 2, True)), [1, 2, True], [3, "1", None]),
        (Choice((0, None)), [0, None], [False, ""]),
        (Range(0.1, 0.5), [0.1, 0.3, 0.5], [0.05, 0.6, True, "0.2", None]),
        (Range(1, 4), [1, 4], [0, 5, 2.5, True]),
        (Range(0.0, 1.0, step=0.25), [0.0, 0.75, 1.0], [0.3]),
        (Range(0, 1.0, step=0.25), [0, 0.75, 1.0], [0.3]),
    ],
)
def test_values_inside_and_outside_of_a_choice(choice, inside, outside):
    assert [value for value in inside if not choice.holds(value)] == []
    assert [value for value in outside if choice.holds(value)] == []


@pytest.mark.parametrize(
    "choice, median",
    [
        (Range(0.0, 0.8, step=0.1), 0.4),
        (Range(0.1, 0.75, step=0.2), 0.3),  # 0.1, 0.3, 0.5, 0.7
        (Range(2, 9, step=3), 5),
        (Range(1, 1024, log=True), 23),  # log-uniform on [0.5, 1024.5], then rounded
        (Range(0.001, 10.0, log=True), 0.1),
        (Range(1, 9), 5),
        (Range(-1.0, 1.0), 0.0),
    ],
)
def test_values_drawn_for_a_comparison_lie_inside_around_the_median(choice, median):
    draw = random.Random(0)
    drawn = sorted(_value(draw, choice) for _ in range(1001))
    assert all(choice.holds(value) for value in drawn)
    assert drawn[500] == pytest.approx(median, rel=0.25, abs=0.1)
    if choice.step:
        assert len(set(drawn)) == int((choice.high - choice.low) / choice.step + 1e-9) + 1


def test_settings_that_the_space_contains_are_found(tmp_path):
    space = read_space(
        write(tmp_path, "space: {model.lr: [0.1], model.encoder.gamma: [0.2, 0.3], data.split: [a]}")
    )
    settings = {"model": {"init_args": {"lr": 0.1, "encoder": {"init_args": {"gamma": 0.4}}}}}
    assert space.fitting(settings) == {"model.lr": 0.1}, "0.4 is not a choice, and no split is set"


names = st.sampled_from(
    ["model.lr", "model.encoder.gamma", "model.encoder.alpha", "data.batch_size", "trainer.max_epochs"]
)


@given(st.dictionaries(names, st.integers(0, 9)), st.dictionaries(names, st.integers(0, 9)))
def test_options_become_a_configuration(first, second):
    """Later options win, all others stay, and the base is not changed."""
    base = nested(first)
    kept = yaml.safe_dump(base)
    whole = nested(second, base)
    assert yaml.safe_dump(base) == kept, "the base is not changed"
    assert whole == nested({**first, **second})
    for name, value in {**first, **second}.items():
        group, *rest = name.split(".")
        place = whole[group]
        for part in rest:
            place = place.get("init_args", place)[part]
        assert place == value


@pytest.mark.parametrize("names", [("model.encoder", "model.encoder.num_layers"),
                                   ("model.encoder.num_layers", "model.encoder")])  # fmt: skip
def test_a_class_and_its_arguments_are_joined_in_any_order(names):
    values = {"model.encoder": "graphzoo.encoders.NodeFormer", "model.encoder.num_layers": 2}
    encoder = {"class_path": "graphzoo.encoders.NodeFormer", "init_args": {"num_layers": 2}}
    assert nested({name: values[name] for name in names}) == {"model": {"init_args": {"encoder": encoder}}}


def test_shipped_spaces_have_title_claim_and_choices():
    presets = list_presets("search")
    assert presets
    for preset in presets:
        assert preset.header["title"] and preset.header["claim"]
        assert read_space(preset.path).choices


def test_numbers_that_yaml_reads_as_strings_are_numbers(tmp_path):
    text = (
        "space:\n  model.lr: [1e-3, 1.5e3, 0.1]\n  model.weight_decay: {low: 1e-5, high: 1.5e1, log: true}\n"
    )
    space = read_space(write(tmp_path, text))
    assert space.choices == {
        "model.lr": Choice((1e-3, 1.5e3, 0.1)),
        "model.weight_decay": Range(1e-5, 15.0, log=True),
    }


def test_options_that_a_configuration_lacks_are_found(tmp_path):
    text = "space:\n  trainer.max_epoch: [1, 2]\n  trainer.max_epochs: [1, 2]\n  model.lrr: [1.0]\n"
    text += "  trainer.logger.project: [a, b]\n"
    space = read_space(write(tmp_path, text))
    settings = {"trainer": {"max_epochs": None}, "model": {"init_args": {"lr": 0.1}}}
    assert space.absent(settings) == ["trainer.max_epoch", "model.lrr"]


def test_options_that_are_given_leave_the_space(tmp_path):
    space = read_space(write(tmp_path, "space: {model.lr: [0.1], model.encoder.gamma: [0.2, 0.3]}"))
    given = ["config", "model.init_args.lr", "trainer.max_epochs"]
    assert list(space.without(given).choices) == ["model.encoder.gamma"]
    with pytest.raises(UsageError, match="set all options of the search space\nLeave out some"):
        space.without([*given, "model.encoder.init_args.gamma"])


@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 2), ("1", "2")), ((True,), ("True",)), ((None,), ("None",)), (("a, b",), ("a", "b"))],
)
def test_spaces_of_other_values_are_described_differently(one, other):
    """Else a search would continue with values that its study refuses."""
    spaces = [Space(Path("x.yaml"), {"model.a": Choice(values)}) for values in (one, other)]
    assert spaces[0].describe() != spaces[1].describe()


def test_names_and_numbers_are_described_as_they_are_written():
    values = ("cos", "relu-2", "graphzoo.encoders.GALiT", 1, 0.5, False, None)
    assert str(Choice(values)) == "{cos, relu-2, graphzoo.encoders.GALiT, 1, 0.5, False, None}"
