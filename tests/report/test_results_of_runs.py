"""`graphzoo results` for single runs: means over seeds, differences from the recipe, commands."""

import contextlib
import csv
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.report_runs import write_row, write_run

from graphzoo.catalog.presets import list_presets
from graphzoo.cli import main
from graphzoo.cli import results as overview
from graphzoo.cli.results import results_main
from graphzoo.errors import UsageError
from graphzoo.report.results import results_section
from graphzoo.runs import changes as settings
from graphzoo.runs.average import write_row as average
from graphzoo.runs.changes import presets_digest, repeat_runs, what_differs
from graphzoo.runs.collect import collect, seeds_of
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records, tell_apart
from graphzoo.runs.published import find_recipe
from graphzoo.runs.results_file import config_hash
from graphzoo.runs.series import runs_of

SHORT = {"trainer.max_epochs": 8}


def edit(run, **changes):
    path = run / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def printed(capsys, *words):
    assert results_main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_runs_of_a_setting_are_one_line(tmp_path, capsys):
    for seed, test in ((0, 0.80), (2, 0.82)):
        write_run(tmp_path / f"a{seed}", seed=seed, test=test)
    write_run(tmp_path / "b", seed=1, test=0.7, changed={"model.encoder.dropout": 0.1})
    lines = list(csv.DictReader(io.StringIO(printed(capsys, tmp_path, "--format=csv"))))
    lines = {line["name"]: line for line in lines if line["metric"] == "acc"}
    assert set(lines) == {"dropout=0.7", "dropout=0.1"}
    mean = lines["dropout=0.7"]
    assert (float(mean["mean"]), float(mean["std"])) == (pytest.approx(0.81), pytest.approx(0.02 / 2**0.5))
    assert (mean["runs"], mean["seeds"], mean["splits"], mean["verdict"]) == ("2", "0, 2", "", "below")
    assert lines["dropout=0.1"]["seeds"] == "1" and "encoder.dropout 0.1" in lines["dropout=0.1"]["differs"]
    assert mean["differs"] == ""
    table = printed(capsys, tmp_path, "--format=markdown")
    assert (
        "| cora | galit: dropout=0.7 | accuracy % | 81.00 ± 1.41 | 2 | 0, 2 | 85.10 ± 0.60 | below |" in table
    )


def test_a_repeated_run_counts_once(tmp_path):
    """A test of the last checkpoint is a run of its own, beside the test of the best one."""
    for number, test in enumerate((0.9, 0.8)):
        run = write_run(tmp_path / f"r{number}", test=test)
        os.utime(run / "results.json", (1000 - number, 1000 - number))
    again = write_run(tmp_path / "again", test=0.9)
    edit(again, command="test", checkpoint="r0/checkpoints/best.ckpt", selection="best validation")
    os.utime(again / "results.json", (500, 500))
    (row,) = collect([tmp_path])
    assert row["metrics"]["test/acc"]["values"] == [0.9], "the newest"
    last = write_run(tmp_path / "last", test=0.1)
    edit(last, command="test", checkpoint="r0/checkpoints/last.ckpt", selection="last epoch", best_epoch=None)
    rows = collect([tmp_path])
    assert sorted(row["metrics"]["test/acc"]["values"][0] for row in rows) == [0.1, 0.9]
    assert len({row["name"] for row in rows}) == 2


def test_seeds_of_model_and_data_identify_runs(tmp_path, capsys):
    """Both follow the seed of the run, unless they are set; the seed of a test makes no other run."""
    named = {"plain": {}, "model": {"model.seed": 7}, "data": {"data.seed": 8}}
    for number, (name, changed) in enumerate(named.items()):
        write_run(tmp_path / name, test=0.7 + number / 10, changed={"model.seed": 0, **changed})
    tested = write_run(tmp_path / "tested", seed=5, test=0.7, changed={"model.seed": 5})
    edit(tested, command="test", seed=0, selection="best validation")
    os.utime(tested / "results.json", (500, 500))
    (row,) = collect([tmp_path])
    assert row["metrics"]["test/acc"]["mean"] == pytest.approx(0.8)
    assert seeds_of(row) == "0; data.seed 8; model.seed 7"
    (line,) = csv.DictReader(io.StringIO(printed(capsys, tmp_path, "--format=csv", "--metric=acc")))
    assert (line["runs"], line["seeds"]) == ("3", "0; data.seed 8; model.seed 7")
    records = {record.path.name: record for record in find_records([tmp_path])}
    assert records["model"].name == "seed 0, model.seed 7" and records["tested"].name == "seed 0"
    trained = [records[name] for name in named]
    assert "--model.seed=7" in shlex.split(repeat_runs(trained[1:2]))
    assert shlex.split(repeat_runs(trained[:2]))[1] == "fit", "no `--seeds` makes them all"
    other = write_run(tmp_path / "one", seed=1, changed={"data.seed": 3})
    pair = [records["plain"], *find_records([other])]
    assert shlex.split(repeat_runs(pair))[1] == "fit"


@pytest.mark.parametrize(
    "name, value",
    [
        ("check_val_every_n_epoch", 3),
        ("val_check_interval", 0.5),
        ("val_check_interval", 1),
        ("gradient_clip_algorithm", "value"),
        ("min_epochs", 100),
    ],
)
def test_trainer_settings_outside_of_the_hash_separate_runs(tmp_path, name, value):
    """They affect the choice of epochs, or the updates of weights."""
    write_run(tmp_path / "a", test=0.8, changed={"trainer.check_val_every_n_epoch": 1})
    write_run(tmp_path / "b", test=0.7, changed={f"trainer.{name}": value})
    rows = collect([tmp_path])
    assert {row["metrics"]["test/acc"]["mean"] for row in rows} == {0.7, 0.8}
    assert any(f"{name}={value}" in row["name"] for row in rows)
    assert any(f"trainer.{name} {value}" in (row["differs"] or "") for row in rows)


def test_trainer_settings_with_their_defaults_do_not_separate_runs(tmp_path):
    write_run(tmp_path / "a", seed=0)
    usual = {"val_check_interval": 1.0, "check_val_every_n_epoch": 1, "min_epochs": 1}
    changed = {f"trainer.{name}": value for name, value in usual.items()}
    write_run(tmp_path / "b", seed=1, changed={**changed, "trainer.gradient_clip_algorithm": "norm"})
    assert [row["seeds"] for row in collect([tmp_path])] == [[0, 1]]


def test_the_precision_of_float32_products_separates_runs(tmp_path):
    for seed, name in enumerate(("earlier", "usual", "medium", "again")):
        write_run(tmp_path / name, seed=seed)
    edit(tmp_path / "usual", matmul_precision=None)
    for name in ("medium", "again"):
        edit(tmp_path / name, matmul_precision="medium")
    rows = {row["name"]: row["seeds"] for row in collect([tmp_path])}
    assert rows == {None: [0, 1], "float32 products medium": [2, 3]}
    command = shlex.split(repeat_runs(find_records([tmp_path / "medium", tmp_path / "again"])))
    assert command[1] == "reproduce" and command[command.index("--matmul_precision") + 1] == "medium"
    assert "--matmul_precision" in shlex.split(repeat_runs(find_records([tmp_path / "medium"])))
    unfinished = write_run(tmp_path / "unfinished", seed=4, finished=False)
    config = unfinished / "config.yaml"
    config.write_text("# graphzoo 0.1.0\n# matmul_precision: medium\n" + config.read_text())
    (group,) = group_records(find_records([unfinished]))
    assert group.label == "galit on cora, float32 products medium"


def test_numbers_of_splits_name_settings_only_if_nothing_else_differs():
    """Tables have a column of splits, so the number of a split is a name only if all else is equal."""
    splits = [{"data": {"split": name, "split_index": number}} for name, number in (("a", 0), ("b", 1))]
    assert tell_apart(splits, [Path("x"), Path("y")]) == ["split=a", "split=b"]
    alike = [{"data": {"split_index": number}} for number in (0, 1)]
    assert tell_apart(alike, [Path("x"), Path("y")]) == ["split_index=0", "split_index=1"]
    rates = [
        {"model": {"lr": rate}, "data": {"split_index": number}} for rate, number in ((0.1, 0), (0.2, 5))
    ]
    names = tell_apart([*rates, {}, {}], [Path(name) for name in "abcd"])
    assert names == ["lr=0.1", "lr=0.2", "c", "d"], "runs without settings change no other name"


def test_training_data_and_changed_resumes_separate_runs(tmp_path):
    """Weights of other data, and a run resumed with other settings, are not further seeds."""
    for seed, name in enumerate(("plain", "elsewhere", "changed")):
        run = write_run(tmp_path / name, seed=seed, test=0.7 + seed / 10)
        result = json.loads((run / "results.json").read_text())
        edit(run, trained_on={"name": "cora", "fingerprint": result["data_fingerprint"]})
    edit(tmp_path / "elsewhere", trained_on={"name": "pubmed", "fingerprint": "b"})
    config = tmp_path / "changed" / "config.yaml"
    config.write_text("# graphzoo 0.1.0\n# resumed: with other settings after epoch 3\n" + config.read_text())
    rows = {row["name"]: row["metrics"]["test/acc"]["values"] for row in collect([tmp_path])}
    assert {name and name.partition(",")[0] for name in rows} >= {
        "trained on pubmed", "resumed with other settings after epoch 3",
    }  # fmt: skip
    assert sorted(rows.values()) == [[pytest.approx(0.7)], [pytest.approx(0.8)], [pytest.approx(0.9)]]
    labels = [group.label for group in group_records(find_records([tmp_path]))]
    assert "galit on cora, trained on pubmed" in labels


def test_unfinished_runs_on_different_files_are_separate(tmp_path):
    """Before the graph is loaded only the path identifies their data."""
    for name in ("a", "b"):
        run = write_run(tmp_path / name, data="nodes", recipe="", finished=False)
        (run / "graph" / "meta.json").unlink()
        config = run / "config.yaml"
        config.write_text(config.read_text().replace("name: cora", f"name: nodes\n    path: mine/{name}"))
    groups = group_records(find_records([tmp_path]))
    assert [group.label for group in groups] == ["galit on a", "galit on b"]


def test_splits_of_one_graph_are_averaged(tmp_path):
    """The fingerprint of link data depends on the split, so it differs between these runs."""
    for index in (0, 1, 2):
        run = write_run(
            tmp_path / f"split{index}", test=0.7 + index / 10, changed={"data.split_index": index}
        )
        edit(run, data_fingerprint=f"f{index}", split={"name": "vgae", "index": index, "links": "same"})
    (row,) = collect([tmp_path])
    assert (row["seeds"], row["splits"], seeds_of(row)) == ([0], [0, 1, 2], "0; splits 0-2")
    assert row["metrics"]["test/acc"]["mean"] == pytest.approx(0.8)
    command = shlex.split(repeat_runs(find_records([tmp_path])))
    assert command[:4] == ["graphzoo", "reproduce", "galit", "cora"]
    assert command[command.index("--splits") + 1] == "0,1,2" and not any("split_index" in w for w in command)


def test_settings_that_differ_from_the_recipe_are_listed(tmp_path):
    changed = {
        **SHORT,
        "trainer.limit_test_batches": 0.5,
        "model.lr": 0.02,
        "model.encoder.dropout": 0.1,
        "data.split_index": 3,
        "trainer.log_every_n_steps": 7,
    }
    (record,) = find_records([write_run(tmp_path / "run", changed=changed)])
    text = what_differs(record)
    assert text.startswith("trainer.limit_test_batches 0.5, trainer.max_epochs 8 (recipe 200), model.")
    assert text.endswith(", and 1 more") and "split_index" not in text
    assert "model" not in what_differs(record, ablation=True)
    changed |= {"model.encoder.class_path": "mine.enc.Spreading"}
    (another,) = find_records([write_run(tmp_path / "another", changed=changed)])
    assert what_differs(another).startswith("encoder Spreading, trainer.limit_test_batches 0.5, ")
    (plain,) = find_records([write_run(tmp_path / "plain")])
    assert what_differs(plain) == ""
    (other,) = find_records([write_run(tmp_path / "other", recipe="", changed=SHORT)])
    assert what_differs(other) == "", "no figure is published for a run of no recipe"
    gcn = {"model.encoder.class_path": "graphzoo.encoders.GNN"}
    (own,) = find_records(
        [write_run(tmp_path / "own", model="gcn", recipe="gcn/cora", changed={**SHORT, **gcn})]
    )
    header = find_recipe("gcn", "gcn/cora", "cora").header["differs"]
    assert what_differs(own).startswith(f"{header}; trainer.max_epochs 8")


@pytest.mark.parametrize(("evaluated", "differs"), [("ogb", False), ("heart", True)])
def test_the_original_protocol_of_ogbs_links_is_no_difference(tmp_path, evaluated, differs):
    run = write_run(tmp_path / "run", changed={"data.protocol": "original"})
    edit(run, split={"name": evaluated, "index": 0})
    (record,) = find_records([run])
    assert ("data.protocol original" in what_differs(record)) is differs


def test_stored_differences_are_shown_without_importing_torch(tmp_path):
    run = write_run(tmp_path / "run", changed=SHORT)
    (record,) = find_records([run])
    edit(run, changed="as recorded then", presets_digest=presets_digest(record))
    code = f"""
import sys
from graphzoo.cli import main
status = main(["results", {str(run)!r}, "--format", "markdown"])
assert "torch" not in sys.modules and "lightning" not in sys.modules
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "as recorded then" in done.stdout


def test_stored_differences_from_a_changed_recipe_are_computed_again(tmp_path):
    run = write_run(tmp_path / "run", changed=SHORT)
    edit(run, changed="", presets_digest="of another text")
    (record,) = find_records([run])
    assert what_differs(record).startswith("trainer.max_epochs 8 (recipe 200)")


def test_stored_differences_are_kept_if_the_recipe_cannot_be_read(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", changed=SHORT)
    edit(run, changed="as recorded then", presets_digest="of another text")

    def broken(*_):
        raise UsageError("recipe.yaml, line 3: not YAML")

    monkeypatch.setattr(settings, "presets_digest", broken)
    (record,) = find_records([run])
    assert what_differs(record) == "as recorded then"


def test_report_and_row_list_differing_settings(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"row/seed-{seed}", seed=seed, changed=SHORT)
    blocks = results_section(group_records(find_records([tmp_path / "row/seed-0"]))).blocks
    assert "differs from the paper's protocol: trainer.max_epochs 8 (recipe 200)" in str(blocks)
    names = {"model": "galit", "data": "cora", "recipe": "galit/cora"}
    row = average(tmp_path / "row", runs_of("0,1", ""), **names)
    assert row["differs"] == "trainer.max_epochs 8 (recipe 200)"
    unpublished = average(tmp_path / "row", runs_of("0,1", ""), **names, published={})
    assert unpublished["differs"] == "trainer.max_epochs 8 (recipe 200)"


def test_a_run_resumed_with_other_settings_is_not_averaged_in_a_row(tmp_path):
    runs = runs_of("0,1", "")
    for run in runs:
        write_run(tmp_path / run.folder, seed=run.seed)
    edit(tmp_path / runs[1].folder, resumed="with other settings after epoch 3")
    with pytest.raises(UsageError, match="seed 1 was resumed with other settings after epoch 3"):
        average(tmp_path, runs, model="galit", data="cora", recipe="galit/cora", published={})


def test_a_row_and_single_runs_have_different_names(tmp_path, capsys):
    write_row(tmp_path / "row")
    run = write_run(tmp_path / "single", seed=7)
    table = printed(capsys, tmp_path, "--format=markdown", "--commands")
    assert "| cora | galit |" in table and "| cora | galit: single |" in table
    assert "| 0-2 |" in table and "settings searched on two cores" in table
    assert f"`{repeat_runs(find_records([run]))}`" in table and "--seed 7" in table
    write_run(tmp_path / "second", seed=9)
    table = printed(capsys, tmp_path, "--format=markdown", "--commands")
    assert "`graphzoo reproduce galit cora --seeds 7,9" in table
    assert printed(capsys, tmp_path, "--published").count("galit") == table.count("| galit") == 2


def test_a_narrow_table_lists_differences_as_notes(tmp_path, capsys, monkeypatch):
    write_run(tmp_path / "run", changed=SHORT)
    text = "trainer.max_epochs 8 (recipe 200)"
    assert text in next(line for line in printed(capsys, tmp_path).splitlines() if "cora" in line)
    monkeypatch.setattr(overview, "_FILE_WIDTH", 80)
    lines = printed(capsys, tmp_path).splitlines()
    assert f"(1) {text}" in lines and any("(1)" in line and "cora" in line for line in lines)


def test_differences_in_recipes_are_short_and_those_of_the_kept_rows():
    shipped = [preset for preset in list_presets("recipe") if "differs" in preset.header]
    assert len(shipped) > 20
    for preset in shipped:
        assert len(preset.header["differs"]) <= 70, preset.name
        assert "paper" in preset.header or preset.name == "knowformer-any/mixture", "no paper has its numbers"
    rows = Path(__file__).parents[2].glob("benchmarks/results/rows/*/row.json")
    for path in rows:
        row = json.loads(path.read_text(encoding="utf-8"))
        recipe = find_recipe(row["model"], row["recipe"] or "", row["data"])
        differs = recipe.header.get("differs", "") if recipe else ""
        assert (row["differs"] or "").startswith(differs), path  # the row's own options may follow
    short = [
        preset
        for preset in list_presets("recipe")
        if preset.name.endswith("-cpu") and "paper" in preset.header
    ]
    assert short and all("differs" in preset.header for preset in short)


EMA = "lightning.pytorch.callbacks.EMAWeightAveraging"
WATCHER = {
    "class_path": "lightning.pytorch.callbacks.LearningRateMonitor",
    "init_args": {"logging_interval": None},
}


def averages(decay=0.999, **others):
    return {
        "class_path": EMA,
        "init_args": {"device": None, "decay": decay, "update_every_n_steps": 1, **others},
    }


def test_averages_of_the_weights_are_a_setting(tmp_path, capsys):
    """Runs with and without them are of different settings; a callback that only watches changes nothing."""
    kinds = {"plain": None, "watched": [WATCHER], "averaged": [averages()], "both": [WATCHER, averages()]}
    for seed, (name, callbacks) in enumerate(kinds.items()):
        write_run(tmp_path / name, seed=seed, changed={"trainer.callbacks": callbacks})
    records = {record.path.name: record for record in find_records([tmp_path])}
    assert records["plain"].hash == records["watched"].hash != records["averaged"].hash
    assert records["averaged"].hash == records["both"].hash
    lines = list(csv.DictReader(io.StringIO(printed(capsys, tmp_path, "--format=csv"))))
    assert sorted(line["seeds"] for line in lines if line["metric"] == "acc") == ["0, 1", "2, 3"]
    assert what_differs(records["averaged"]) == what_differs(records["both"]) == "EMAWeightAveraging"
    assert what_differs(records["watched"]) == what_differs(records["plain"]) == ""


@pytest.mark.parametrize(
    "callbacks", [[averages()], [averages(0.9, update_starting_at_step=5), WATCHER], "own"]
)
def test_the_command_of_a_run_has_its_averaging_callback(tmp_path, callbacks):
    """Arguments with the default of the class, and callbacks that only watch, are left out."""
    callbacks = (
        [{"class_path": "of.nobody.Callback", "init_args": {"x": 1}}] if callbacks == "own" else callbacks
    )
    (record,) = find_records([write_run(tmp_path / "run", changed={"trainer.callbacks": callbacks})])
    (words,) = [
        word for word in shlex.split(repeat_runs([record])) if word.startswith("--trainer.callbacks=")
    ]
    (entry,) = json.loads(words.partition("=")[2])
    given = {key: value for key, value in callbacks[0]["init_args"].items() if value not in (None, 0.999)}
    given.pop("update_every_n_steps", None)
    assert entry.pop("init_args", {}) == given
    assert entry == {"class_path": callbacks[0]["class_path"]}


@pytest.mark.parametrize("package", ["lightning.pytorch.callbacks", "graphzoo.callbacks"])
def test_both_spellings_of_a_callback_have_one_hash(package):
    entry = {"class_path": f"{package}.Of", "init_args": {"x": 1, "y": None}}
    long = {"class_path": f"{package}.module.Of", "init_args": {"x": 1}}
    assert config_hash({"trainer": {"callbacks": [entry]}}) == config_hash({"trainer": {"callbacks": long}})
    other = {"class_path": f"{package}.Of", "init_args": {"x": 2}}
    assert config_hash({"trainer": {"callbacks": [entry]}}) != config_hash(
        {"trainer": {"callbacks": [other]}}
    )


def test_new_settings_with_their_default_keep_the_hash():
    def hash_of(**arguments):
        return config_hash(
            {"data": {"class_path": "graphzoo.datamodules.KGDataModule", "init_args": arguments}}
        )

    assert hash_of(name="umls") == hash_of(name="umls", validate_on="training")
    assert hash_of(name="umls") != hash_of(name="umls", validate_on="inference")
    assert hash_of(name="umls") == hash_of(name="umls", fact_dropout=0.0)
    assert hash_of(name="umls") != hash_of(name="umls", fact_dropout=0.5)


@pytest.mark.parametrize(
    "damaged", [[1], "text", [{"class_path": "a.B", "init_args": [1]}], [None], {"a": 1}]
)
def test_damaged_callbacks_are_ignored(tmp_path, capsys, damaged):
    write_run(tmp_path / "run", changed={"trainer.callbacks": damaged})
    assert "galit" in printed(capsys, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ["--trainer.callbacks=null"],
        ["--trainer.callbacks.decay=0.9"],
        [
            "--trainer.callbacks+=EarlyStopping",
            "--trainer.callbacks.monitor=val/mrr",
            "--trainer.callbacks.mode=max",
        ],
        [
            "--trainer.callbacks=null",
            "--trainer.callbacks+=EMAWeightAveraging",
            "--trainer.callbacks.decay=0.5",
        ],
    ],
)
def test_the_printed_command_has_the_same_settings(tmp_path, options):
    def settings_of(words):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main([*words, "--print_config"]) == 0
        return text.getvalue()

    config = settings_of(["fit", "--model=knowformer", "--data=umls", *options])
    header = "# graphzoo 0.1.0\n# model: knowformer\n# data: umls\n# recipe: knowformer/umls\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(header + config)
    (record,) = find_records([tmp_path / "run"])
    again = settings_of(shlex.split(repeat_runs([record]))[1:])
    assert config_hash(yaml.safe_load(again)) == record.hash


def test_changed_callbacks_of_the_recipe_are_listed(tmp_path):
    words = ["fit", "--model=knowformer", "--data=umls", "--print_config"]
    found = []
    for name, extra in (
        ("whole", []),
        ("none", ["--trainer.callbacks=null"]),
        ("wider", ["--trainer.callbacks.decay=0.9"]),
    ):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main([*words, *extra]) == 0
        run = tmp_path / name
        run.mkdir()
        header = "# graphzoo 0.1.0\n# model: knowformer\n# data: umls\n# recipe: knowformer/umls\n"
        (run / "config.yaml").write_text(header + text.getvalue())
        (record,) = find_records([run])
        found.append((what_differs(record), repeat_runs([record])))
    (whole, whole_again), (none, none_again), (wider, wider_again) = found
    assert "callbacks" not in whole_again
    assert none == f"{whole}; no WarmupEMAWeightAveraging" and "--trainer.callbacks=null" in none_again
    assert wider == f"{whole}; WarmupEMAWeightAveraging decay 0.9" and '"decay": 0.9' in wider_again


def test_changed_settings_are_shown_without_published_scores(tmp_path, capsys):
    run = write_run(tmp_path / "run", data="digits", recipe="galit/digits", changed=SHORT)
    (record,) = find_records([run])
    edit(run, changed="trainer.max_epochs 8", presets_digest=presets_digest(record))
    assert "trainer.max_epochs 8" in printed(capsys, tmp_path, "--format=markdown")
    lines = csv.DictReader(io.StringIO(printed(capsys, tmp_path, "--format=csv")))
    assert {line["differs"] for line in lines} == {"trainer.max_epochs 8"}


def test_a_row_behind_a_link_in_another_folder_is_listed_once(tmp_path):
    write_row(tmp_path / "disk" / "row")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "row").symlink_to(tmp_path / "disk" / "row")
    assert len(collect([tmp_path / "runs"])) == len(collect([tmp_path / "runs", tmp_path / "disk"])) == 1


def test_a_report_counts_a_training_once(tmp_path):
    """A test of it, and the same folder by another name, are not further runs."""
    run = write_run(tmp_path / "run", test=0.9)
    tested = write_run(tmp_path / "tested", test=0.9)
    (tested / "metrics.csv").unlink()
    edit(tested, command="test", checkpoint="run/checkpoints/best.ckpt", selection="best validation")
    (tmp_path / "link").symlink_to(run)
    (group,) = group_records(find_records([tmp_path, tmp_path / "link", tmp_path / "tested/../run"]))
    assert group.figures()["test/acc"] == (0.9, None, 1)
    assert [record.path.name for record in group.records] in (["run"], ["link"]), "which has curves"
    last = write_run(tmp_path / "last", test=0.5)
    edit(
        last, command="test", checkpoint="run/checkpoints/last.ckpt", selection="last epoch", best_epoch=None
    )
    groups = group_records(find_records([tmp_path]))
    assert sorted(group.figures()["test/acc"][::2] for group in groups) == [(0.5, 1), (0.9, 1)]
    assert len({group.label for group in groups}) == 2


def test_the_test_of_an_untested_run_is_shown_with_its_curves(tmp_path):
    edit(write_run(tmp_path / "run"), metrics={"val/acc": 0.8}, command="validate")
    tested = write_run(tmp_path / "tested", test=0.7)
    (tested / "metrics.csv").unlink()
    (group,) = group_records(find_records([tmp_path]))
    assert group.figures()["test/acc"] == (0.7, None, 1) and len(group.records) == 2


def test_a_row_that_is_named_twice_is_one_line(tmp_path):
    write_row(tmp_path / "row")
    row = tmp_path / "row" / "row.json"
    for paths in ([tmp_path, row], [row, tmp_path], [row, tmp_path / "row" / ".." / "row" / "row.json"]):
        assert len(collect(paths)) == 1


def test_standardize_features_with_its_default_keeps_the_hash_of_link_runs():
    for name, same in (("LinkDataModule", True), ("NodeDataModule", False)):
        data = {"class_path": f"graphzoo.datamodules.{name}", "init_args": {"batch_size": 5}}
        for value in (None, False):
            younger = {**data, "init_args": {**data["init_args"], "standardize_features": value}}
            assert (config_hash({"data": data}) == config_hash({"data": younger})) is same
        options = {**data, "init_args": {**data["init_args"], "standardize_features": True}}
        assert config_hash({"data": options}) != config_hash({"data": data})


def test_the_newest_of_untested_runs_of_a_seed_counts(tmp_path):
    """The first run was killed and started again."""
    for place, name in enumerate(("killed", "again", "other")):
        run = write_run(tmp_path / name, seed=place // 2, finished=False)
        for file in ("metrics.csv", "config.yaml"):
            os.utime(run / file, (1000 + place, 1000 + place))
    (group,) = group_records(find_records([tmp_path]))
    assert [record.path.name for record in group.records] == ["again", "other"]
