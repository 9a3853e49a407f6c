"""The mean of several runs, and runs that cannot be averaged."""

import json

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs.average import read_runs
from graphzoo.runs.series import _same, runs_of


@pytest.mark.parametrize(
    ("what", "remedy"),
    [("config_hash", "Move .*seed-1 away"), ("data_fingerprint", "give another folder: --out")],
)
def test_runs_with_other_settings_or_data_are_not_averaged(tmp_path, what, remedy):
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
        result = {"metrics": {"test/mrr": 0.5}, "config_hash": "a", "data_fingerprint": "b"}
        result |= {what: f"of {seed}"}
        (tmp_path / f"seed-{seed}" / "results.json").write_text(json.dumps(result))
    with pytest.raises(UsageError, match=f"(?s)seed 1 has other .*: they have no common mean.*{remedy}"):
        read_runs(tmp_path, runs_of("0,1", ""))
    assert len(read_runs(tmp_path, runs_of("0", ""))) == 1


def test_the_odd_run_is_named_wherever_it_stands(tmp_path):
    for seed, found in enumerate("abb"):
        (tmp_path / f"seed-{seed}").mkdir()
        result = {"metrics": {"test/mrr": 0.5}, "config_hash": found}
        (tmp_path / f"seed-{seed}" / "results.json").write_text(json.dumps(result))
    with pytest.raises(UsageError, match=r"seed 0 has other settings than the other runs \(a, there b\)"):
        read_runs(tmp_path, runs_of("0-2", ""))


@pytest.mark.parametrize("whole", ["links", "triples", None])
def test_the_data_of_several_splits_are_compared_without_the_split(tmp_path, whole):
    """The fingerprint of links and triples covers the split, that of nodes does not."""
    for split in (0, 1):
        (tmp_path / f"split-{split}-seed-0").mkdir()
        result = {"metrics": {"test/mrr": 0.5}, "data_fingerprint": f"of {split}", "split": {whole: "same"}}
        (tmp_path / f"split-{split}-seed-0" / "results.json").write_text(json.dumps(result))
    if whole:
        assert len(read_runs(tmp_path, runs_of("0", "0,1"))) == 2
    else:
        with pytest.raises(UsageError, match="split 1, seed 0 has other data"):
            read_runs(tmp_path, runs_of("0", "0,1"))


def test_a_run_without_test_scores_is_refused(tmp_path):
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "results.json").write_text(json.dumps({"metrics": {}}))
    with pytest.raises(UsageError, match="has no test scores.*\n.*limit_test_batches=0"):
        read_runs(tmp_path, runs_of("0", ""))


def test_options_may_change_their_order_but_configuration_files_may_not():
    """A configuration file overrides the options before it."""
    one = ["--config", "a.yaml", "--model.lr=0.1"]
    assert not _same(one, ["--model.lr=0.1", "--config=a.yaml"]) and _same(one, list(one))
    twice = ["--model.lr=0.1", "--model.lr=0.2"]
    assert not _same(twice, twice[::-1]) and not _same(twice, twice[1:]) and _same(twice, list(twice))
    assert _same(["--model.lr=0.1", "--data.path=./a"], ["--data.path", "a", "--model.lr=0.1"])
