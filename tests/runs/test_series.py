"""Folders of several runs, each claimed by one command."""

import json

import pytest

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


@pytest.mark.parametrize("text", ["0-10000", "7,0-9999", "0-4999,0-5000"])
def test_at_most_ten_thousand_numbers_are_taken(text):
    assert len(whole_numbers("0-4999,5000-9999", "--seeds")) == 10_000
    with pytest.raises(UsageError, match="more than 10,000 numbers"):
        whole_numbers(text, "--seeds")


def test_seeds_have_32_bits():
    assert [run.seed for run in runs_of("4294967295", "")] == [2**32 - 1]
    with pytest.raises(UsageError, match="from 0 to 4294967295, got 4294967296"):
        runs_of("0,4294967296", "")
