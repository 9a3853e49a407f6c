"""Folders of several runs, each claimed by one command."""

import json

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs.series import claim, is_claimed

WORDS = ["--model", "galit", "--model.lr=0.1"]


@pytest.mark.parametrize(
    "options",
    [["--quiet"], ["--logger", "csv"], ["--data.root=there"], ["--trainer.enable_progress_bar", "false"]],
)
def test_a_row_continues_with_options_that_change_no_score(tmp_path, options):
    for first, then in ((WORDS, [*WORDS, *options]), ([*options, *WORDS], WORDS)):
        claim(tmp_path, {"options": first}, first, begun=False, what="seeds")
        claim(tmp_path, {"options": then}, then, begun=True, what="seeds")
    # Earlier versions wrote all options.
    (tmp_path / "command.json").write_text(json.dumps({"options": [*WORDS, *options], "files": {}}))
    assert is_claimed(tmp_path, {"options": WORDS}, WORDS)
    with pytest.raises(UsageError, match="holds seeds with other options"):
        claim(tmp_path, {"options": [*WORDS, "--model.dropout=0"]}, WORDS, begun=True, what="seeds")
