"""The picture of results beside published ones: dots, bars, lines and bands have the values of the table."""

import json

import pytest
from helpers.report_runs import write_row, write_run
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex

from graphzoo.cli import main
from graphzoo.report import Options, build_report, find_records, group_records
from graphzoo.report.content import Picture, TableBlock
from graphzoo.report.paper_figures import paper_pictures
from graphzoo.report.style import COLORS, drawing

KG = {"test/mrr": 0.92, "test/hits@1": 0.9, "test/hits@3": 0.94, "test/hits@10": 0.98, "test/mr": 1.5}


def pictures_of(*runs):
    return {picture.name: picture for picture in paper_pictures(group_records(find_records(list(runs))))}


def drawn(picture):
    """The figure and, for each panel, names and positions of its rows, from top to bottom."""
    with drawing():
        figure = picture.draw()
        figure.draw_without_rendering()
    found = []
    for axes in figure.axes:
        rows = [(dot, bars) for dot, _, bars in (container.lines for container in axes.containers)]
        of_rows = {bar for _, bars in rows for bar in bars}
        lines = [one for one in axes.collections if isinstance(one, LineCollection) and one not in of_rows]
        bands = [
            one.get_paths()[0].get_extents() for one in axes.collections if isinstance(one, PolyCollection)
        ]
        found.append({
            "names": [text.get_text() for text in axes.texts],
            "dots": [float(dot.get_xdata()[0]) for dot, _ in rows],
            "tones": [to_hex(dot.get_color()) for dot, _ in rows],
            "bars": [tuple(bars[0].get_segments()[0][:, 0].tolist()) if bars else None for _, bars in rows],
            "paper": [float(line.get_segments()[0][0, 0]) for line in lines],
            "bands": [(band.x0, band.x1) for band in bands],
            "heading": axes.get_title(loc="left"), "label": axes.get_xlabel(), "limits": axes.get_xlim(),
        })  # fmt: skip
    return figure, found


def approximately(*pairs):
    return [pair if pair is None else pytest.approx(pair) for pair in pairs]


def test_several_seeds_have_a_bar_and_the_paper_a_band(tmp_path):
    [(name, picture)] = pictures_of(write_row(tmp_path / "row")).items()
    figure, [panel] = drawn(picture)
    assert name == "paper" and panel["names"] == ["accuracy %"] and panel["heading"] == ""
    assert panel["dots"] == approximately(85.0) and panel["bars"] == approximately((84.0, 86.0))
    assert panel["paper"] == approximately(85.1) and panel["bands"] == approximately((84.5, 85.7))
    assert panel["limits"][0] < 84 and 86 < panel["limits"][1] < 87
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["mean ± std of the runs", "paper", "paper ± std"]
    assert panel["label"] == "higher is better"
    assert "accuracy % on cora, 3 runs: 85.00 ± 1.00; the paper: 85.10 ± 0.60." in picture.alt


def test_one_run_has_a_row_for_each_published_metric(tmp_path):
    run = write_run(
        tmp_path / "kg", model="knowformer", data="umls", recipe="knowformer/umls-demo", figures=KG
    )
    figure, [panel] = drawn(pictures_of(run)["paper"])
    assert panel["names"] == ["MRR", "hits@1", "hits@10"]
    assert panel["dots"] == approximately(0.92, 0.9, 0.98) and panel["bars"] == [None] * 3
    assert panel["paper"] == approximately(0.971, 0.958, 0.998) and panel["bands"] == []
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["result", "paper"]


def test_settings_are_rows_and_data_sets_are_panels(tmp_path):
    runs = [
        write_row(tmp_path / "row"),
        write_run(tmp_path / "nf", model="nodeformer", recipe="nodeformer/cora", test=0.8),
        write_run(tmp_path / "own", model="mlp", recipe="", test=0.55),
        write_run(tmp_path / "cs", data="citeseer", recipe="galit/citeseer", test=0.7),
        write_run(tmp_path / "alone", data="pubmed", recipe="", test=0.6),
        write_run(
            tmp_path / "kg", model="knowformer", data="umls", recipe="knowformer/umls-demo", figures=KG
        ),
    ]
    found = pictures_of(*runs)
    assert list(found) == ["paper-acc", "paper-mrr", "paper-hits-1", "paper-hits-10"]
    _, [cora, citeseer] = drawn(found["paper-acc"])
    assert (cora["heading"], citeseer["heading"]) == ("cora", "citeseer"), "no paper knows pubmed's"
    # mlp has no published score, but is shown beside models that have one.
    assert cora["names"] == ["galit", "nodeformer", "mlp"] and citeseer["names"] == ["galit"]
    assert cora["dots"] == approximately(85.0, 80.0, 55.0) and len(cora["paper"]) == 2
    assert cora["bars"] == approximately((84.0, 86.0), None, None)
    assert cora["tones"] == list(COLORS[:3]) and citeseer["tones"] == [COLORS[3]]  # as in the curves
    assert "no published value" in found["paper-acc"].caption
    assert citeseer["label"] == "accuracy %, higher is better" and cora["label"] == ""
    _, [umls] = drawn(found["paper-mrr"])
    assert umls["names"] == ["knowformer (umls-demo)"] and umls["heading"] == "umls"


def test_names_and_ticks_of_many_settings_do_not_overlap(tmp_path):
    for depth in range(1, 7):
        changed = {"model.encoder.num_layers": depth, "model.encoder.hidden_channels": 1024 * depth}
        write_run(tmp_path / f"run-{depth}", test=0.3 + 0.1 * depth, changed=changed)
    figure, [panel] = drawn(pictures_of(tmp_path)["paper-acc"])
    assert len(set(panel["names"])) == 6 and "num_layers=6" in panel["names"][-1]
    axes = figure.axes[0]
    with drawing():
        figure.draw_without_rendering()
        low, high = axes.get_xlim()
        ticks = [text for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
        texts = [text for text in (*axes.texts, *ticks) if text.get_text()]
        boxes = [text.get_window_extent() for text in texts]
    assert len(boxes) >= 6 + 3
    for place, one in enumerate(boxes):
        assert one.x0 >= 0 and one.x1 <= figure.bbox.x1 + 1
        assert not any(one.overlaps(other) for other in boxes[place + 1 :])


def test_equal_scores_have_an_axis_of_useful_length(tmp_path):
    run = write_run(tmp_path / "run", test=0.85100001)
    [(_, picture)] = pictures_of(run).items()
    low, high = drawn(picture)[1][0]["limits"]
    assert high - low > 1.5


def test_nothing_is_drawn_without_both_scores(tmp_path):
    assert pictures_of(write_run(tmp_path / "own", recipe="")) == {}
    assert pictures_of(write_run(tmp_path / "begun", finished=False)) == {}
    assert pictures_of(tmp_path / "own", tmp_path / "begun") == {}
    broken = write_run(tmp_path / "nan", changed={"model.lr": 1.0}, figures={"test/acc": float("nan")})
    assert pictures_of(broken) == {}
    assert drawn(pictures_of(broken, write_run(tmp_path / "run"))["paper-acc"])[1][0]["dots"] == [80.0]


def test_the_picture_is_below_the_table_of_results(tmp_path):
    write_row(tmp_path / "row")
    write_run(tmp_path / "nf", model="nodeformer", recipe="nodeformer/cora", test=0.8)
    for folder, name in ((tmp_path / "row", "paper"), (tmp_path, "paper-acc")):
        results = build_report(group_records(find_records([folder])), Options(models=False)).sections[0]
        table, picture = results.blocks[:2]
        assert results.title == "Results" and isinstance(table, TableBlock) and not table.folded
        assert isinstance(picture, Picture) and picture.name == name


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture_is_also_written_to_a_file(tmp_path, capsys, form, begin):
    row = write_row(tmp_path / "row", seeds=(0, 1))
    place = tmp_path / "pictures"
    assert main(["plot", str(row), "--no-model", "--format", form, "--out", str(place)]) == 0
    content = (place / f"paper.{form}").read_bytes()
    assert content.startswith(begin)
    if form == "svg":
        assert b"accuracy %" in content and b"paper" in content
    assert json.loads((row / "row.json").read_text())["metrics"]["test/acc"]["paper"] == 0.851
