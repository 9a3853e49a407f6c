"""Rows of results: ablations, runs in one process, and `graphzoo results`."""

import csv
import io
import json
import math
import shutil
from pathlib import Path

import pytest
import yaml
from helpers.report_runs import write_row, write_run

from graphzoo.catalog.presets import list_presets
from graphzoo.catalog.settings import word_of
from graphzoo.cli.reproduce import _tell_left_out
from graphzoo.errors import UsageError
from graphzoo.runs import changes as settings
from graphzoo.runs.collect import collect
from graphzoo.runs.published import compare, parse_published
from graphzoo.runs.series import runs_of

ABLATIONS = [preset.name for preset in list_presets("ablation")]


@pytest.fixture
def reproduce(cli, tiny_nodes):
    """`reproduce(*arguments, status=0)` trains a small GALiT in this process and checks the exit status."""

    def run(*arguments, status=0):
        command = ["reproduce", "galit", "nodes", f"--data.path={tiny_nodes}", "--in-process"]
        small = ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu", "--logger=csv"]
        result = cli(*command, *small, "--trainer.max_epochs=3", *arguments)
        assert result.status == status, result.err
        return result

    return run


def row(folder):
    return json.loads((Path(folder) / "row.json").read_text())


def test_a_run_does_not_depend_on_earlier_runs_in_the_process(reproduce):
    reproduce("--seeds=0,1", "--out=both")
    reproduce("--seeds=1", "--out=alone", "--quiet")
    assert "--quiet" not in row("alone")["command"] and "--logger" not in row("alone")["command"]
    both, alone = row("both"), row("alone")
    for metric, found in alone["metrics"].items():
        assert found["values"] == both["metrics"][metric]["values"][1:], metric
    figures = []
    for name in ("both", "alone"):
        with Path(name, "seed-1/metrics.csv").open() as file:
            lines = list(csv.DictReader(file))
        figures.append(
            [{k: v for k, v in line.items() if k.endswith(("loss", "acc", "step"))} for line in lines]
        )
    assert figures[0] == figures[1]


def test_finished_seeds_left_out_of_a_row_are_named(reproduce):
    assert "not averaged" not in reproduce("--seeds=2,10", "--out=row").err
    err = reproduce("--seeds=0", "--out=row").err
    assert "finished there before, not averaged here: seed-2, seed-10\n" in err
    assert row("row")["seeds"] == [0]
    all_of_them = reproduce("--seeds=0,2,10", "--out=row").err
    assert "not averaged" not in all_of_them and "starts" not in all_of_them


def test_a_wrong_option_leaves_no_run_to_continue(reproduce):
    err = reproduce("--trainer.callbacks+=EarlyStoping", "--out=row", status=2).err
    assert "Did you mean: EarlyStopping" in err and "to continue" not in err
    assert not Path("row").exists()


def test_a_run_begun_with_no_test_is_refused_in_a_row(reproduce):
    run = Path("row/seed-0")
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/last.ckpt").touch()
    (run / "config.yaml").write_text("# graphzoo 0.1.0\n# test: no\n")
    err = reproduce("--seeds=0", "--out=row", status=2).err
    assert "row/seed-0 was begun with --no-test" in err and "Move it away" in err


def test_only_runs_of_the_same_rows_are_named_as_left_out(tmp_path, capsys):
    def left_out(folders, runs):
        _tell_left_out([tmp_path / folder for folder in folders], runs)
        return capsys.readouterr().err.partition("\n")[0]

    names = [f"row/seed-{k}" for k in range(7)]
    for name in (*names, "row/split-1-seed-0", "row/other/seed-9", "none/seed-8", "full/seed-0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "results.json").touch()
    (tmp_path / "row/seed-11").mkdir()  # not finished
    some = "finished there before, not averaged here: "
    assert left_out(["row"], runs_of("0", "")) == some + "seed-1, seed-2, seed-3, seed-4, seed-5, ..."
    assert left_out(["row"], runs_of("0-6", "")) == ""
    assert left_out(["row"], runs_of("0", "0")) == some + "split-1-seed-0"
    assert left_out(["none", "full"], runs_of("0", "")) == some + "seed-8"


def test_scores_are_kept_if_a_preset_cannot_be_read(reproduce, monkeypatch, caplog):
    """The differences from the recipe are left out, and a warning says why."""

    def broken(*_, **__):
        raise UsageError("recipe.yaml, line 3: not YAML")

    monkeypatch.setattr(settings, "changed_protocol", broken)
    reproduce("--seeds=0", "--out=row")
    found = json.loads(Path("row/seed-0/results.json").read_text())
    assert found["metrics"]["test/acc"] >= 0 and not {"changed", "presets_digest"} & set(found)
    assert "results.json will not list the differences from the recipe: recipe.yaml, line 3" in caplog.text


def test_an_option_that_the_ablation_sets_is_refused(cli):
    words = ["reproduce", "galit", "citeseer", "--ablation", "attention"]
    for word in ("--model.encoder.norm=fro", "--model.init_args.encoder.init_args.norm=fro"):
        done = cli(*words, word)
        assert done.status == 2 and "the ablation sets model.encoder.norm" in done.err, done.err
        assert "Leave --model.encoder.norm out" in done.err
    assert not Path("runs").exists()


def test_an_ablation_is_a_table_of_rows(reproduce, cli):
    rows = [
        {"name": "as it is", "options": {}, "paper": {"nodes": "acc=0.1±0.05"}},
        {"name": "No attention!", "options": {"model.encoder.attention": "none"}},
    ]
    Path("parts.yaml").write_text(yaml.safe_dump({"rows": rows}))
    done = reproduce("--seeds=0,1", "--ablation=parts.yaml")
    base = Path("runs/ablation/galit-tiny-parts")
    whole, without = row(base / "as-it-is"), row(base / "no-attention")
    assert whole["name"] == "as it is" and whole["metrics"]["test/acc"]["paper"] == 0.1
    assert whole["metrics"]["test/acc"]["paper_std"] == 0.05 and "10.00 ± 5.00" in done.out
    assert without["metrics"]["test/acc"]["paper"] is None
    configured = (base / "no-attention/seed-0/config.yaml").read_text()
    assert yaml.safe_load(configured)["model"]["init_args"]["encoder"]["init_args"]["attention"] == "none"
    losses = [[run["metrics"]["test/loss"] for run in found["runs"]] for found in (whole, without)]
    assert losses[0] != losses[1]
    assert "as it is" in done.out and "No attention!" in done.out
    again = reproduce("--seeds=0,1", "--ablation=parts.yaml")
    assert again.err.count("finished before") == 4
    # The same rows in one table, as Markdown and as CSV in full precision.
    table = cli("results", "runs", "--format=markdown").out.splitlines()
    assert table[0].startswith("| data | model |") and len(table) == 4
    assert "| tiny | galit: as it is | accuracy % |" in "\n".join(table) and "| above |" in "\n".join(table)
    lines = list(csv.DictReader(io.StringIO(cli("results", "--format=csv").out)))
    found = next(line for line in lines if line["name"] == "as it is" and line["metric"] == "acc")
    assert float(found["mean"]) == whole["metrics"]["test/acc"]["mean"] and found["runs"] == "2"


@pytest.mark.parametrize("name", ABLATIONS)
def test_options_of_shipped_ablations_exist(cli, tiny_nodes, name):
    model, _, short = name.partition("/")
    preset = next(preset for preset in list_presets("ablation") if preset.name == name)
    assert preset.header["title"] and preset.header["claim"]
    rows = yaml.safe_load(preset.path.read_text(encoding="utf-8"))["rows"]
    names = {preset.name.rpartition("/")[2] for kind in ("data", "recipe") for preset in list_presets(kind)}
    for part in rows:
        assert set(part.get("paper", {})) <= names
        for figures in part.get("paper", {}).values():
            assert all(0 < value < 1 for value, _ in parse_published(figures).values())
    named = {"knowformer": ["--data=umls"], "pencil": ["--data=citeseer-heuristics"]}
    data = named.get(model, ["--data=nodes", f"--data.path={tiny_nodes}"])
    values: dict[str, list[str]] = {}
    for option, value in (pair for part in rows for pair in part["options"].items()):
        values.setdefault(option, [])
        if word_of(value) not in values[option]:
            values[option].append(word_of(value))
    for place in range(max(map(len, values.values()))):  # every value once, not every row
        words = [f"--{option}={words[place % len(words)]}" for option, words in values.items()]
        shown = cli("fit", f"--model={model}", *data, *words, "--print_config")
        assert shown.status == 0, (words, shown.err)
    assert len({json.dumps(part["options"], sort_keys=True) for part in rows}) == len(rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no rows"),
        ("rows: []", "has no rows"),
        ("rows: [1]", "row 1 has to be a name, options"),
        ("rows: [{options: {model.lr: 1}}]", "row 1 has to be a name"),
        ("rows: [{name: a, opts: {}}]", "row 1 has to be a name"),
        ("rows: [{name: a, options: [1]}]", "row 1 has to be a name"),
        ("rows: [{name: a, options: {lr: 1}}]", "row 1: 'lr' is not an option"),
        ("rows: [{name: a b}, {name: A-b}]", "two rows are called 'a b'"),
        ("rows: [{name: ..}]", "is not a name for a row"),
        ("rows: [{name: a, paper: {cora: 0.85}}]", "0.85 for cora is not a score"),
        ("rows: [{name: a, paper: {cora: acc=high}}]", "'acc=high' for cora is not a score"),
    ],
)
def test_wrong_ablations_are_refused_by_row(cli, content, message):
    Path("rows.yaml").write_text(content)
    result = cli("reproduce", "galit", "cora", "--ablation=rows.yaml")
    assert result.status == 2 and message in result.err and "rows.yaml" in result.err, result.err
    assert not Path("runs").exists()


def test_a_wrong_option_of_a_later_row_is_refused_before_the_first_runs(reproduce):
    rows = [
        {"name": "as it is", "options": {}},
        {"name": "wide", "options": {"model.encoder.hiden_channels": 9}},
    ]
    Path("parts.yaml").write_text(yaml.safe_dump({"rows": rows}))
    refused = reproduce("--seeds=0", "--ablation=parts.yaml", status=2)
    assert "parts, 'wide': unknown option --model.encoder.hiden_channels" in refused.err
    assert "--model.encoder.hidden_channels?" in refused.err and not Path("runs").exists()


def test_wrong_names(cli):
    assert "Did you mean: attention" in cli("reproduce", "galit", "cora", "--ablation=atention").err
    assert "Did you mean: gamma" in cli("reproduce", "gcn", "cora", "--ablation=galit/gama").err
    assert "there is no ablation file" in cli("reproduce", "galit", "cora", "--ablation=a.yaml").err
    unknown = cli("results", "nowhere")
    assert unknown.status == 2 and "nowhere: no such file or folder\nGive a folder" in unknown.err
    assert "no finished runs were found\nMake some: " in cli("results").err
    write_run(Path("runs/one"))
    Path("runs/damaged").mkdir()
    Path("runs/damaged/row.json").write_text("{")
    misspelt = cli("results", "--data=coraa").err
    assert "there are no such results\nThere are: galit on cora" in misspelt
    assert "Did you mean: markdown" in cli("results", "--format=markdwn").err
    assert "unknown option --frmat" in cli("results", "--frmat=csv").err


def test_results_show_single_runs_and_rows_once(reproduce, cli, fit_nodes):
    reproduce("--seeds=0,1")
    fit_nodes("--seed=7")
    table = cli("results").out
    assert table.count("galit") == 2, "the row, and the single run"
    lines = list(csv.DictReader(io.StringIO(cli("results", "--format=csv", "--metric=acc").out)))
    assert sorted(line["runs"] for line in lines if line["metric"] == "acc") == ["1", "2"]
    spaced = cli("results", "--model= gcn , galit ")
    assert spaced.status == 0 and spaced.out.count("galit") == 2
    unknown = cli("results", "--metric=ac")
    assert unknown.status == 2 and "no result has the metric 'ac'\nDid you mean: acc" in unknown.err
    other = cli("results", "--data=cora")
    assert other.status == 2 and "there are no such results\nThere are: galit on " in other.err
    assert "there are no such results" in cli("results", "--published").err, "there are no published scores"
    table = cli("results", "--commands", "--format=markdown").out
    assert "`graphzoo reproduce galit nodes --data.path=" in table and " --seeds 0,1`" in table
    assert "--logger" not in table
    assert cli("results", "--model=galit,gcn").out.count("galit") == 2
    damaged = next(Path("runs/galit-nodes").glob("*/results.json"))
    damaged.write_text(damaged.read_text()[:40])
    found = cli("results")
    assert found.status == 1 and f"left out: {damaged} is damaged" in found.err
    assert found.out.count("galit") == 1, "the row is still shown"
    whole = {"model": "galit", "data": "nodes"}
    bad = [{}, {"metrics": {}}, {"metrics": {"test/acc": {"mean": 1}}}]
    bad.append({"metrics": {"test/acc": {"mean": 1, "values": [1], "paper": "x"}}})
    for content in bad:
        Path("runs/reproduce/galit-tiny/row.json").write_text(json.dumps(whole | content))
        refused = cli("results", "runs/reproduce")
        assert refused.status == 2 and "is not a row of results" in refused.err, content


def test_one_seed_of_a_row_can_be_shown_alone(cli, tmp_path):
    seed = write_row(tmp_path / "row") / "seed-1"
    for path in (seed, seed / "results.json"):
        found = cli("results", path)
        assert found.status == 0 and "85.00" in found.out, found.err
    both = cli("results", tmp_path, "--format=csv")
    assert len(both.out.splitlines()) == 2, "the row alone"


def test_csv_has_the_chosen_metric_and_commands(tmp_path, cli):
    figure = {"mean": 0.5, "std": None, "paper": None, "paper_std": None, "values": [0.5]}
    row = {"model": "galit", "data": "cora", "seeds": [0], "command": "graphzoo reproduce galit cora"}
    (tmp_path / "row.json").write_text(
        json.dumps({**row, "metrics": {"test/acc": figure, "test/ap": figure}})
    )
    table = ["results", str(tmp_path), "--format=csv"]
    (line,) = csv.DictReader(io.StringIO(cli(*table, "--metric=ap", "--commands").out))
    assert line["metric"] == "ap" and line["command"] == "graphzoo reproduce galit cora"
    every = list(csv.DictReader(io.StringIO(cli(*table).out)))
    assert [line["metric"] for line in every] == ["acc", "ap"] and "command" not in every[0]


def test_latex_is_a_table_of_models_by_data_with_the_best_in_bold(tmp_path, cli):
    def write(folder, model, data, metric, values, recipe=None, differs=None):
        mean = sum(values) / len(values)
        figure = {"mean": mean, "std": 0.01 if values[1:] else None, "paper": None, "paper_std": None}
        row = {"model": model, "data": data, "recipe": recipe, "command": f"graphzoo {model}"}
        (tmp_path / folder).mkdir()
        content = {**row, "differs": differs, "metrics": {f"test/{metric}": {**figure, "values": values}}}
        (tmp_path / folder / "row.json").write_text(json.dumps(content))

    write("a", "galit", "my_club", "acc", [0.5, 0.6])
    write("b", "gcn", "my_club", "acc", [0.7, 0.8])
    write("c", "gcn", "my_club", "acc", [math.nan])
    write("d", "galit", "pairs", "rmse", [0.25])
    write("e", "gcn", "pairs", "rmse", [0.75])
    write("f", "galit", "umls", "mrr", [0.9], differs="filtered_ce")
    write("g", "galit", "umls", "mrr", [0.8], recipe="galit/umls", differs="5 epochs")
    write("h", "[a|b]*", "umls", "mrr", [0.7], differs="filtered_ce")
    write("i", "gcn", "wn18rr", "mrr", [0.4], differs="1 epoch")
    found = cli("results", tmp_path, "--format=latex", "--commands")
    assert found.status == 0, found.err
    assert "number of runs: 1 to 2." in found.out and r"\begin{tabular}{lrrrr}" in found.out
    assert found.out.partition("\\toprule\n")[2].splitlines() == [
        r"model & my\_club, accuracy \% & pairs, rmse & umls, mrr & wn18rr, mrr \\",
        r"\midrule",
        r"galit & 55.00 $\pm$ 1.00 & \textbf{0.2500} & \textbf{0.9000}$^{1}$ &  \\",
        r"gcn: b & \textbf{75.00 $\pm$ 1.00} &  &  &  \\",
        r"gcn: c & nan &  &  &  \\",
        r"gcn &  & 0.7500 &  & 0.4000$^{2}$ \\",
        r"{[}a\textbar{}b]{*} &  &  & 0.7000$^{1}$ &  \\",
        r"galit &  &  & 0.8000$^{3}$ &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par{\footnotesize $^{1}$ filtered\_ce\par}",
        r"\par{\footnotesize $^{2}$ 1 epoch\par}",
        r"\par{\footnotesize $^{3}$ 5 epochs\par}",
        "% my_club: galit: `graphzoo galit`",
        "% my_club: gcn: b: `graphzoo gcn`",
        "% my_club: gcn: c: `graphzoo gcn`",
        "% pairs: galit: `graphzoo galit`",
        "% pairs: gcn: `graphzoo gcn`",
        "% umls: [a|b]*: `graphzoo [a|b]*`",
        *["% umls: galit: `graphzoo galit`"] * 2,
        "% wn18rr: gcn: `graphzoo gcn`",
    ]


def test_finished_runs_of_an_unfinished_row_are_shown(reproduce, cli):
    reproduce("--seeds=0,1")
    shutil.rmtree("runs/reproduce/galit-tiny/seed-1")
    Path("runs/reproduce/galit-tiny/row.json").unlink()
    (line,) = csv.DictReader(io.StringIO(cli("results", "--format=csv", "--metric=acc").out))
    assert (line["model"], line["runs"], line["seeds"]) == ("galit", "1", "0")
    reproduce("--seeds=0,1")
    (line,) = csv.DictReader(io.StringIO(cli("results", "--format=csv", "--metric=acc").out))
    assert (line["runs"], line["seeds"]) == ("2", "0, 1")


def test_a_data_file_may_have_the_longest_possible_name(reproduce, cli, tiny_nodes):
    folder = Path("d" * 250)
    shutil.copy(tiny_nodes, f"{folder}.npz")
    reproduce("--seeds=0", f"--data.path={folder}.npz", "--out=row")
    assert "d" * 250 in cli("results", "row", "--format=csv").out


def test_scores_of_untrained_weights_are_no_result(cli, tiny_nodes):
    names = ["--model=galit", "--data=nodes", f"--data.path={tiny_nodes}", "--logger=csv"]
    tested = cli("test", *names, "--trainer.accelerator=cpu", "--run_dir=untrained")
    assert tested.status == 0 and "no --ckpt_path, so these are untrained weights" in tested.err
    shown = cli("results", "untrained")
    assert shown.status == 2 and "accuracy" not in shown.out
    hint = cli("test", "untrained")
    assert hint.status == 2 and "untrained holds no checkpoint" in hint.err


def test_a_row_is_not_continued_with_a_changed_recipe(reproduce):
    Path("mine.yaml").write_text("model: {init_args: {lr: 0.1}}")
    reproduce("--seeds=0", "--recipe=mine.yaml")
    reproduce("--seeds=0", "--recipe=mine.yaml")
    Path("mine.yaml").write_text("model: {init_args: {lr: 0.5}}")
    refused = reproduce("--seeds=0", "--recipe=mine.yaml", status=2)
    assert "made before mine.yaml changed" in refused.err


def test_a_mean_is_compared_with_the_published_score():
    assert compare("mrr", 0.5, None, None) == compare("mrr", float("nan"), 0.5, 0.1) == ""
    means = (0.61, 0.6, 0.5, 0.4, 0.39)
    three = [compare("mrr", mean, 0.5, 0.1, std=0.5, runs=3) for mean in means]
    assert three == ["above", "met", "met", "met", "below"]
    assert [compare("mrr", mean, 0.5, 0.1) for mean in means] == ["met", "met", "met", "met", "below"]
    own = [compare("mrr", mean, 0.5, None, std=0.02, runs=4) for mean in (0.511, 0.51, 0.49, 0.489)]
    assert own == ["above", "met", "met", "below"]
    # The standard error is 0.05 for 100 queries and 0.005 for 10,000.
    assert [compare("mrr", 0.46, 0.5, None, tested=count) for count in (100, 10_000, None)] == [
        "met",
        "below",
        "below",
    ]
    assert compare("mrr", 0.9, 0.5, None, tested=100) == "met"
    assert compare("mrr", 3.0, 3.5, None, tested=100) == "below"  # not a score between 0 and 1
    assert (
        compare("mrr", 0.28343, 0.2834, None) == compare("mrr", 0.28337, 0.2834, None) == "met"
        and compare("mrr", 0.28334, 0.2834, None) == "below"
    )


def test_rows_are_sorted_by_the_numbers_in_their_names(tmp_path):
    metrics = {"test/acc": {"mean": 0.5, "std": None, "paper": None, "paper_std": None, "values": [0.5]}}
    names = ["gamma = 1e-5", "gamma = 0.02", "gamma = 0.1", "K = 1", "K = 3", "K = 10", "raw", None]
    for number, name in enumerate(names):
        content = {"model": "galit", "data": "cora", "recipe": "galit/cora", "name": name, "seeds": [0]}
        (tmp_path / f"row-{9 - number}").mkdir()
        (tmp_path / f"row-{9 - number}" / "row.json").write_text(
            json.dumps(content | {"splits": None, "metrics": metrics, "runs": [{"seed": 0}]})
        )
    found = [row["name"] for row in collect([tmp_path])]
    assert found == [None, "K = 1", "K = 3", "K = 10", *names[:3], "raw"]


def test_the_authors_settings_come_first_and_the_rule_is_explained(tmp_path, cli):
    metrics = {"test/acc": {"mean": 0.5, "std": 0.1, "paper": 0.5, "paper_std": 0.1, "values": [0.4, 0.6]}}
    for recipe in ("galit/cora", "galit/cora-published", "galit/cora-narrow"):
        content = {"model": "galit", "data": "cora", "recipe": recipe, "name": None, "seeds": [0, 1]}
        folder = tmp_path / recipe.replace("/", "-")
        folder.mkdir()
        (folder / "row.json").write_text(
            json.dumps(content | {"splits": None, "metrics": metrics, "runs": []})
        )
    recipes = [row["recipe"] for row in collect([tmp_path])]
    assert recipes == ["galit/cora-published", "galit/cora", "galit/cora-narrow"]
    out = cli("results", str(tmp_path)).out
    assert "Above or below: differs by more than the paper's standard deviation" in " ".join(out.split())


def test_a_row_of_own_data_is_named_after_their_file(reproduce, cli, tiny_nodes):
    shutil.copy(tiny_nodes, "second.npz")
    result = reproduce("--seeds=0")
    assert "galit on tiny: test, " in result.out and row("runs/reproduce/galit-tiny")["data"] == "nodes"
    result = reproduce("--seeds=0", "--data.path=second.npz")
    assert "galit on second: test, " in result.out, "another file is another row"
    lines = list(csv.DictReader(io.StringIO(cli("results", "--format=csv", "--metric=acc").out)))
    assert {line["data"] for line in lines} == {"tiny", "second"}


def test_an_untested_run_has_no_results_yet(cli):
    Path("my run").mkdir()
    Path("my run/config.yaml").touch()
    err = cli("results", "my run").err
    assert "my run is a run that was not tested\nTest it: graphzoo test 'my run', or train it on: " in err


def test_a_chosen_hits_metric_is_in_the_row():
    from graphzoo.runs.published import average_metrics

    tested = {"test/tie_share": 0.0, "test/hits@5": 0.5, "test/mrr": 0.4}
    assert list(average_metrics([tested], {})) == ["test/mrr", "test/hits@5"]
    assert list(average_metrics([{"test/loss": 1.0}], {})) == ["test/loss"]
