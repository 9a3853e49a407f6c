"""Tables of rows on the terminal."""

import math

from graphzoo.runs.tables import print_rows


def test_a_nan_mean_is_printed_without_difference(capsys):
    figure = {"mean": math.nan, "std": None, "paper": 0.85, "paper_std": None, "values": [math.nan]}
    print_rows("row", [{"name": None, "metrics": {"test/acc": figure}}])
    out = capsys.readouterr().out
    assert "85.00" in out and "-nan" not in out
