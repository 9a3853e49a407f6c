"""What a folder of several runs is claimed for."""

import json

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs.series import claim, is_claimed

WORDS = ["--model", "galit", "--model.lr=0.1"]


@pytest.mark.parametrize(
    "shown",
    [["--quiet"], ["--logger", "csv"], ["--data.root=there"], ["--trainer.enable_progress_bar", "false"]],
)
def test_what_changes_no_figure_keeps_no_row_from_being_continued(tmp_path, shown):
    for first, then in ((WORDS, [*WORDS, *shown]), ([*shown, *WORDS], WORDS)):
        claim(tmp_path, {"options": first}, first, begun=False, what="seeds")
        claim(tmp_path, {"options": then}, then, begun=True, what="seeds")
    # as earlier versions wrote it
    (tmp_path / "command.json").write_text(json.dumps({"options": [*WORDS, *shown], "files": {}}))
    assert is_claimed(tmp_path, {"options": WORDS}, WORDS)
    with pytest.raises(UsageError, match="holds seeds with other options"):
        claim(tmp_path, {"options": [*WORDS, "--model.dropout=0"]}, WORDS, begun=True, what="seeds")
