"""Values of lines, dots and cells in pictures are those of the files."""

import math
import warnings

import pytest
import torch
from helpers.report_runs import write_run
from matplotlib.figure import Figure

from graphzoo.report.content import Note, Picture
from graphzoo.report.curve_figures import _finish, curve_blocks
from graphzoo.report.evaluation_figures import _draw_matrix
from graphzoo.report.models.attention import _within
from graphzoo.report.models.galit import _draw
from graphzoo.report.models.ranks import THRESHOLD, rank
from graphzoo.report.models.sample import NodeSample
from graphzoo.report.style import drawing
from graphzoo.runs import changes as settings
from graphzoo.runs.find import find_records
from graphzoo.runs.groups import group_records


def axes_of(picture):
    with drawing():
        figure = picture.draw()
        figure.draw_without_rendering()
    return figure.axes[0]


def write_rows(run, header, rows):
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    return run


def blocks_of(*runs, speed=False):
    return curve_blocks(group_records(find_records(list(runs))), speed=speed)


def pictures_of(*runs, speed=False):
    return {one.name: one for one in blocks_of(*runs, speed=speed) if isinstance(one, Picture)}


def notes_of(*runs, speed=False):
    return [block.text for block in blocks_of(*runs, speed=speed) if isinstance(block, Note)]


def points_of(line):
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def test_the_thick_line_is_the_mean_of_runs(tmp_path):
    values = {0: (0.2, 0.4, 0.6), 1: (0.4, 0.8, 0.7)}
    for seed, column in values.items():
        run = write_run(tmp_path / str(seed), seed=seed)
        write_rows(run, ["step", "epoch", "val/acc"], [(i, i, value) for i, value in enumerate(column)])
    thin, also, thick = axes_of(pictures_of(tmp_path)["val-acc"]).lines
    assert thick.get_linewidth() > thin.get_linewidth() == also.get_linewidth()
    assert [y for _, y in points_of(thin)] == pytest.approx([20, 40, 60])
    assert [y for _, y in points_of(also)] == pytest.approx([40, 80, 70])
    assert points_of(thick) == [(1, pytest.approx(30)), (2, pytest.approx(60)), (3, pytest.approx(65))]


def test_the_learning_rate_is_the_densest_column_in_steps(tmp_path):
    """A line through the two values of a sparse column would look like a linear decay."""
    run = write_run(tmp_path / "run", epochs=40)
    rates = [0.1] * 20 + [0.01] * 20
    rows = [(epoch, "", "", rate) for epoch, rate in enumerate(rates)]
    rows += [(epoch, epoch, rates[epoch], "") for epoch in (0, 39)]
    write_rows(run, ["step", "epoch", "train/lr", "lr-Adam"], sorted(rows, key=lambda row: row[0]))
    # LearningRateMonitor logs no epoch, so the rows of the loss place its steps.
    text = (run / "metrics.csv").read_text().splitlines()
    lines = [f"{text[0]},train/loss", *(f"{line}," for line in text[1:])]
    lines += [f"{epoch},{epoch},,,1.0" for epoch in range(40)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    [line] = axes_of(pictures_of(run)["train-lr"]).lines
    assert line.get_drawstyle() == "steps-post" and line.get_marker() in (None, "None")
    assert points_of(line) == [(epoch + 1, rate) for epoch, rate in enumerate(rates)]


def test_sparse_rows_are_marked(tmp_path):
    run = write_run(tmp_path / "run")
    rows = [(epoch, epoch, 0.1 / (1 + epoch) if not epoch % 10 else "", 0.5) for epoch in range(41)]
    write_rows(run, ["step", "epoch", "train/lr", "train/loss"], rows)
    drawn = pictures_of(run)
    [line] = axes_of(drawn["train-lr"]).lines
    assert line.get_drawstyle() == "steps-post" and line.get_marker() == "o" and len(points_of(line)) == 5
    [line] = axes_of(drawn["train-loss"]).lines
    assert line.get_drawstyle() == "default" and line.get_marker() in (None, "None")


@pytest.mark.parametrize("values", [(5.98, 6.0, 6.0, 6.0, 6.0), (6.0, 6.0, 6.0, 6.0, 6.0), (1, 2, 6, 3, 2)])
def test_the_axis_of_memory_begins_at_zero_and_ends_above_the_maximum(tmp_path, values):
    run = write_run(tmp_path / "run")
    write_rows(run, ["step", "epoch", "train/peak_memory_gib"], [(i, i, v) for i, v in enumerate(values)])
    low, high = axes_of(pictures_of(run, speed=True)["train-peak-memory-gib"]).get_ylim()
    assert low == 0 and high >= 6.3


@pytest.mark.parametrize("values", [(0.13, 4.2), (0.5, 80), (0.001, 9000)])
def test_a_logarithmic_axis_has_several_ticks(tmp_path, values):
    """With ticks at powers of ten only, some of these axes would have a single one."""
    run = write_run(tmp_path / "run")
    write_rows(run, ["step", "epoch", "train/grad_norm"], [(i, i, value) for i, value in enumerate(values)])
    axes = axes_of(pictures_of(run)["train-grad-norm"])
    low, high = axes.get_ylim()
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert axes.get_yscale() == "log" and 3 <= len(shown) <= 7


def test_the_dot_is_explained_only_if_one_is_drawn(tmp_path):
    run = write_run(tmp_path / "run")
    assert "A dot marks" in "".join(notes_of(run))
    write_rows(run, ["step", "epoch", "train/loss"], [(0, 0, 1.0), (1, 1, 0.5)])
    assert notes_of(run) == []


# With few epochs every validation is drawn, with many only the last one of each epoch.
@pytest.mark.parametrize("epochs", [3, 8])
def test_the_dot_is_the_validation_that_chose_the_checkpoint(tmp_path, epochs):
    """An epoch may have several validations, and the best need not be the last."""
    run = write_run(tmp_path / "run", epochs=epochs, test=0.8)  # the best is 0.81, in the last epoch but one
    best = epochs - 2
    rows = []
    for epoch in range(epochs):
        values = (float("nan"), 0.81, 0.6) if epoch == best else (0.3, 0.4, 0.35)
        rows += [(3 * epoch + i, epoch, value, 1 - value) for i, value in enumerate(values)]
    write_rows(run, ["step", "epoch", "val/acc", "val/loss"], rows)
    pictures = pictures_of(run)
    for name, value in (("val-acc", 81), ("val-loss", 0.19)):
        axes = axes_of(pictures[name])
        [dot] = axes.collections[0].get_offsets().tolist()
        assert dot == pytest.approx([best + 2 / 3, value])
        assert len(points_of(axes.lines[0])) == (9 if epochs == 3 else 8)
    assert f"81 at the best epoch ({best + 2 / 3:.4g})" in pictures["val-acc"].alt


def test_a_single_value_is_written_and_not_drawn(tmp_path):
    """A picture of a single point shows less than a sentence."""
    names = ["step", "epoch", "val/acc", "train/loss", "train/step_seconds", "lr-Adam"]
    loss = [(step, 0, "", 2.0 - step, "", "") for step in (0, 1)]
    run = write_rows(write_run(tmp_path / "run"), names, [*loss, (7, 0, 0.5, "", 0.25, 0.1)])
    assert list(pictures_of(run)) == ["train-loss"] and not pictures_of(run, speed=True)
    prefix = "Metrics with a single value have no curve. "
    assert notes_of(run)[-1] == f"{prefix}Validation accuracy %: 50."
    assert notes_of(run, speed=True) == [f"{prefix}Seconds per step: 0.25."]
    write_rows(write_run(tmp_path / "seed", seed=1), names, [(7, 0, 0.75, "", "", "")])
    assert notes_of(tmp_path)[-1].endswith("Validation accuracy %: 62.5 (mean of 2 runs).")
    other = write_rows(write_run(tmp_path / "gcn", model="gcn", recipe=""), names, [(7, 0, 0.25, "", "", "")])
    assert "%: 50 (galit on cora), 25 (gcn on cora)." in notes_of(run, other)[-1]
    write_rows(other, names, [(step, step, 0.5, "", "", "") for step in (0, 1)])
    assert "val-acc" in pictures_of(run, other), "one point beside a curve"


def test_cells_are_coloured_by_their_share_of_the_row():
    with drawing():
        figure = _draw_matrix([[6.0, 2.0], [0.0, 0.0], [1.0, 1.0]], ["a", "b", "c"], ["a", "b"], "x", "y")
    image = figure.axes[0].images[0]
    assert image.get_array().tolist() == [[0.75, 0.25], [0, 0], [0.5, 0.5]] and image.get_clim() == (0, 1)


def test_the_share_of_edges_within_a_class_is_counted():
    sample = NodeSample(
        torch.arange(4), torch.tensor([0, 0, 0, 1]), torch.zeros(4, 4).bool(), ("a", "b"), tuple("wxyz"), 4
    )
    edges = [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0), (2, 3, 1.0)]
    assert _within(edges, sample) == "75% join nodes of one class."
    assert _within(edges[3:], sample) == "0% join nodes of one class."


def test_the_spectrum_continues_below_its_threshold():
    """The rank is where the line crosses the threshold; cut there, it would seem to end."""
    values = {"P": torch.tensor([1.0, 1e-5, 5e-9, 2e-10, 1e-12]), "A": torch.tensor([1.0, 0.5]).double()}
    with drawing():
        axes = _draw(values).axes[0]
    attention, adjacency, threshold = axes.lines
    assert points_of(attention) == [(i + 1, pytest.approx(v)) for i, v in enumerate((1, 1e-5, 5e-9, 2e-10))]
    assert min(attention.get_ydata()) < THRESHOLD and rank(values["P"]) == 2
    assert points_of(adjacency) == [(1, 1.0), (2, 0.5)] and threshold.get_ydata()[0] == THRESHOLD
    assert attention.get_label() == "attention P: rank 2"


def test_defaults_are_read_once_for_all_runs_of_the_same_classes(tmp_path, monkeypatch):
    read = []
    defaults_of = settings.defaults_of
    monkeypatch.setattr(settings, "defaults_of", lambda cls: read.append(cls) or defaults_of(cls))
    settings._defaults_of.cache_clear()
    first, second = find_records([write_run(tmp_path / name) for name in "ab"])
    assert settings.changed_settings(first) == settings.changed_settings(second)
    assert len(read) == len(set(read)) == 4


def test_a_single_line_has_a_legend(tmp_path):
    write_run(tmp_path / "kg", model="knowformer", data="umls", recipe="", metric="mrr")
    write_run(tmp_path / "node")
    [legend] = axes_of(pictures_of(tmp_path / "kg", tmp_path / "node")["val-acc"]).figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["galit on cora"]


def test_a_curve_with_an_infinite_value_is_drawn_without_a_warning():
    axes = Figure().add_subplot()
    axes.plot([0, 1], [1.0, 2.0])
    axes.dataLim.intervaly = (1.0, math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _finish(axes, log=True)
