"""Reading metrics.csv and the runs of a folder, grouping runs, and refusing damaged files."""

import json
import os

import pytest
from helpers.report_runs import write_row, write_run

from graphzoo.errors import UsageError
from graphzoo.runs.curves import Curves, mean_curve, read_curves, thin
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records


def write_metrics(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_steps_are_placed_within_their_epoch(tmp_path):
    path = write_metrics(
        tmp_path / "metrics.csv",
        "step,epoch,train/loss,val/mrr,lr-Adam",
        "1,0,4.0,,",
        "1,,,,0.5",  # LearningRateMonitor logs no epoch
        "3,0,2.0,,",
        "3,0,,0.5,",
        "5,1,1.0,,",
        "7,1,,0.75,",
        "7,,,,0.25",
    )
    found = read_curves(path)
    assert found.num_epochs == 2
    assert found.values["train/loss"] == [(0.5, 4.0), (1.0, 2.0), (1.5, 1.0)]
    assert found.values["lr-Adam"] == [(0.5, 0.5), (2.0, 0.25)]
    assert found.of("val/mrr") == [(1.0, 0.5), (2.0, 0.75)]
    assert found.of("train/loss") == found.values["train/loss"]  # few epochs: every step


def test_long_runs_show_one_value_per_epoch():
    points = [(epoch + part / 4, float(epoch + part)) for epoch in range(6) for part in (1, 2, 4)]
    found = Curves({"train/loss": points, "val/mrr": points}, 6)
    assert found.of("train/loss")[0] == (1.0, pytest.approx(7 / 3))
    assert found.of("val/mrr")[0] == (1.0, 4.0)
    assert [x for x, _ in found.of("val/mrr")] == [1, 2, 3, 4, 5, 6]


def test_the_row_of_the_test_changes_no_epoch(tmp_path):
    """The test is logged with the last step, but with the epoch of the best checkpoint."""
    lines = ["step,epoch,val/acc,test/acc", "0,0,0.1,", "1,1,0.2,", "2,2,0.1,", "3,1,,0.3"]
    found = read_curves(write_metrics(tmp_path / "metrics.csv", *lines))
    assert found.of("val/acc") == [(1.0, 0.1), (2.0, 0.2), (3.0, 0.1)]
    assert "test/acc" not in found.values


def test_an_epoch_that_has_only_test_scores_is_none(tmp_path):
    lines = ["step,epoch,val/acc,test/acc", "5,2,0.5,", "5,0,,0.3"]
    assert read_curves(write_metrics(tmp_path / "metrics.csv", *lines)).values == {"val/acc": [(3.0, 0.5)]}


def test_a_run_that_logs_while_it_is_read_is_shown(tmp_path, monkeypatch):
    path = write_metrics(tmp_path / "metrics.csv", "step,epoch,val/acc", "0,0,0.5")
    fstat = os.fstat

    def grown(descriptor):
        facts = fstat(descriptor)
        with path.open("a") as file:
            file.write("1,1,0.75\n")
        return facts

    monkeypatch.setattr("graphzoo.system.regular_files.os.fstat", grown)
    assert read_curves(path).of("val/acc")[0] == (1.0, 0.5)


def test_a_file_that_excel_has_saved_is_read(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,epoch,val/acc\r\n0,0,0.5\r\n", encoding="utf-8-sig")
    assert read_curves(path).of("val/acc") == [(1.0, 0.5)]


def test_an_incomplete_last_line_is_ignored(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,epoch,val/acc\n0,0,0.5\n1,1,0.")
    assert read_curves(path).of("val/acc") == [(1.0, 0.5)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step,epoch,val/acc", "0,0,0.5", "1,one,0.5"], "metrics.csv, line 3"),
        (["step,epoch,val/acc", "0,0,high"], "'high'"),
        (["time,acc", "1,2"], "no column `step`"),
    ],
)
def test_damaged_metrics_are_named(tmp_path, lines, expected):
    with pytest.raises(UsageError, match="(?s)metrics.csv.*\n") as error:
        read_curves(write_metrics(tmp_path / "metrics.csv", *lines))
    assert expected in str(error.value)


def test_means_and_thinned_curves():
    assert mean_curve([[(1, 1.0), (2, 3.0)], [(1, 3.0), (2, 5.0), (3, 9.0)]]) == [(1, 2.0), (2, 4.0)]
    assert mean_curve([]) == []
    points = [(float(x), 0.0) for x in range(10_000)]
    points[4321] = (4321.0, 7.0)
    points[77] = (77.0, -3.0)
    found = thin(points, 100)
    assert 50 < len(found) < 160 and found[0] == points[0] and found[-1] == points[-1]
    assert points[4321] in found and points[77] in found and found == sorted(found)
    assert thin(points[:90], 100) == points[:90]
    points[4000] = (4000.0, float("nan"))  # first of the stretch that has the peak
    assert points[4321] in thin(points, 40)


def test_runs_are_grouped_by_setting(tmp_path):
    write_row(tmp_path / "row")
    for seed in (5, 6):
        write_run(tmp_path / "own" / str(seed), seed=seed, changed={"model.encoder.dropout": 0.1})
    (tmp_path / "row" / "seed-3.stopped-1").mkdir()
    (tmp_path / "row" / "seed-3.stopped-1" / "config.yaml").write_text("# graphzoo\n")
    row, own = group_records(find_records([tmp_path / "row", tmp_path / "own", tmp_path / "own" / "5"]))
    assert [record.name for record in row.records] == ["seed 0", "seed 1", "seed 2"]
    assert [record.name for record in own.records] == ["seed 5", "seed 6"]
    assert row.published()["test/acc"] == (0.851, 0.006) == own.published()["test/acc"]
    mean, deviation, count = row.figures()["test/acc"]
    assert (mean, deviation, count) == (pytest.approx(0.85), pytest.approx(0.01), 3)
    assert row.label != own.label and "dropout=0.1" in own.label


def test_a_run_without_a_test_joins_those_tested_at_their_best(tmp_path):
    for seed, selection in enumerate(("last epoch", "best validation")):
        run = write_run(tmp_path / str(seed), seed=seed)
        result = json.loads((run / "results.json").read_text()) | {"selection": selection}
        del result["config_hash"]  # that of the settings, as for a run without a test
        (run / "results.json").write_text(json.dumps(result))
    write_run(tmp_path / "2", seed=2, finished=False)
    groups = group_records(find_records([tmp_path]))
    assert [[record.name for record in group.records] for group in groups] == [
        ["seed 0"],
        ["seed 1", "seed 2"],
    ]


def test_runs_in_training_on_another_graph_are_a_group_of_their_own(tmp_path):
    for seed, fingerprint in enumerate("aab"):
        run = write_run(tmp_path / str(seed), seed=seed, finished=False)
        (run / "graph" / "meta.json").write_text(json.dumps({"fingerprint": fingerprint}))
    groups = group_records(find_records([tmp_path]))
    assert [len(group.records) for group in groups] == [2, 1]


def test_a_link_run_in_training_joins_the_finished_ones_of_other_splits(tmp_path):
    """The fingerprint of link data covers the split; the links are the same."""
    done, begun = (
        write_run(tmp_path / str(i), finished=not i, changed={"data.split_index": i}) for i in (0, 1)
    )
    result = json.loads((done / "results.json").read_text())
    (done / "results.json").write_text(json.dumps({**result, "split": {"links": "same"}}))
    meta = {"fingerprint": "of split 1", "split": {"links": "same"}}
    (begun / "graph" / "meta.json").write_text(json.dumps(meta))
    [group] = group_records(find_records([tmp_path]))
    assert len(group.records) == 2


@pytest.mark.parametrize("content", ["{", "[]"])
def test_damaged_facts_of_the_graph_are_named(tmp_path, content):
    run = write_run(tmp_path / "run", finished=False)
    (run / "graph" / "meta.json").write_text(content)
    with pytest.raises(UsageError, match=r"graph.meta\.json is damaged"):
        find_records([run])


def test_a_run_in_training_is_found_by_one_of_its_files(tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    [group] = group_records(find_records([run / "metrics.csv"]))
    assert group.label == "galit on cora" and group.figures() == {}
    assert group.first.curves.num_epochs == 8


def test_paths_without_a_run_are_refused(tmp_path):
    write_run(tmp_path / "galit-run")
    with pytest.raises(UsageError, match="Did you mean: .*galit-run"):
        find_records([tmp_path / "galit-rum"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty holds no run"):
        find_records([tmp_path / "empty"])
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        find_records([tmp_path / "file.txt"])


@pytest.mark.parametrize("content", ["{", "[]", '{"metrics": {"test/acc": "good"}}', '{"metrics": 3}'])
def test_damaged_results_are_named(tmp_path, content):
    run = write_run(tmp_path / "run")
    (run / "results.json").write_text(content)
    with pytest.raises(UsageError, match="(?s)results.json is damaged.*Move it away, and test again"):
        find_records([run])
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(UsageError, match="or write its results again: graphzoo fit"):
        find_records([run])


@pytest.mark.parametrize(
    "changed", [{"split": "x"}, {"validation": ["a"]}, {"versions": "1"}, {"num_parameters": "many"}]
)
def test_results_with_values_of_another_kind_are_named(tmp_path, changed):
    """Otherwise one such run would end a whole report."""
    run = write_run(tmp_path / "run")
    result = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(result | changed))
    with pytest.raises(UsageError, match=f"results.json is damaged .*{next(iter(changed))} is not a"):
        find_records([run])


def test_damaged_settings_are_named(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "config.yaml").write_text("a: [")
    with pytest.raises(UsageError, match="(?s)config.yaml, line .*not valid YAML.*Move it away"):
        find_records([run])


def test_a_damaged_row_is_named(tmp_path):
    row = write_row(tmp_path / "row")
    (row / "row.json").write_text(json.dumps({"metrics": {}}))
    with pytest.raises(UsageError, match="row.json is not a row"):
        group_records(find_records([row]))
