"""The HTML page of a report: its content, that it loads nothing, and that names are escaped."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from helpers.report_runs import CONTROL, NASTY, every_kind, write_evaluation, write_row, write_run
from matplotlib.colors import to_hex
from pandas import DataFrame

from graphzoo.analysis import Table
from graphzoo.analysis.triples import _histogram
from graphzoo.report import Options, build_report, find_records, group_records, to_html
from graphzoo.report.content import Code, Note, Picture, Report, Section, TableBlock
from graphzoo.report.evaluation_figures import _cell, _draw_bars, evaluation_blocks
from graphzoo.report.models.attention import _draw_edges, _draw_map
from graphzoo.report.models.knowformer import _draw
from graphzoo.report.models.sample import NodeSample
from graphzoo.report.style import (
    COLORS,
    THEME,
    colors_of,
    drawing,
    fitted,
    inline_svg,
    new_figure,
    save_figure,
)
from graphzoo.system.units import duration

VOID = {"meta", "br", "img", "link", "input", "hr", "wbr"}
SHAPES = {"path", "use", "rect", "image", "circle", "line"}  # elements that matplotlib's SVG closes at once


class Page(HTMLParser):
    """Elements of a page with their attributes, and texts by element; fails if elements are not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts, self.goes_on = [], [], {}, False
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [name for name, _ in attrs]))
        self.goes_on = tag == "wbr"  # a word continues after a break opportunity
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [name for name, _ in attrs]))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        if data.strip():
            found = self.texts.setdefault(self.open[-1] if self.open else "", [])
            if self.goes_on:
                found[-1] += data
            else:
                found.append(data)
        self.goes_on = False

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]


def page_of(*paths, **options):
    report = build_report(group_records(find_records(list(paths))), Options(models=False, **options))
    return to_html(report)


@pytest.fixture(scope="module")
def row_page(tmp_path_factory):
    row = write_row(tmp_path_factory.mktemp("runs") / "row", changed={"model.encoder.dropout": 0.25})
    write_evaluation(row / "seed-0")
    text = page_of(row)
    return text, Page(text)


def test_the_page_loads_nothing_and_runs_no_script(row_page):
    text, page = row_page
    assert "http:" not in text and "https:" not in text and "//" not in re.sub(r"base64,[\w+/=]*", "", text)
    tags = {name for name, _, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "img", "form", "foreignobject"}
    for _, attributes, _ in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        target = attributes.get("href", "")
        assert not target or target.startswith("#") or target.startswith("data:image/png;base64,")
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy["content"]


def test_every_reference_has_one_target(row_page):
    text, page = row_page
    names = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(names) == len(set(names)) > 30
    targets = {a["href"][1:] for _, a, _ in page.elements if a.get("href", "").startswith("#")}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    targets |= {a["aria-labelledby"] for _, a, _ in page.elements if "aria-labelledby" in a}
    assert targets and targets <= set(names)


def test_a_section_and_a_picture_of_one_name_have_different_ids():
    """The section `Depth` has the picture `depth`."""
    picture = Picture("depth", "Test MRR over layers", "", new_figure)
    page = Page(to_html(Report("", "", [Section("Depth", [picture]), Section("Depth", [])])))
    names = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert sorted(names) == ["depth", "depth-2", "depth-3"]


def test_names_of_data_are_escaped(row_page):
    text, page = row_page
    assert "<script>" not in text and "<b>" not in text
    cells = page.texts["td"] + page.texts["th"]
    assert NASTY in cells
    # Pictures shorten names, and `$` begins no formula.
    assert any(label.startswith('<script>alert("x")</script>') for label in page.texts["text"])
    assert "$a$ theory" in page.texts["text"]


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\ufffe"])
def test_control_characters_are_left_out_of_pages(character):
    """Names of relations, entities and classes may hold them; matplotlib and XML refuse them."""
    name = f"b{character}old"
    for drawn in (_draw_bars([name], [("", {name: 0.5})]), _draw([name], [2.0], ["head"])):
        text = shown_in(drawn, name)
        assert "bold" in text
        assert character not in text
    classes = NodeSample(
        torch.arange(2), torch.tensor([0, 1]), torch.eye(2).bool(), (name, f"{character} "), ("u", "v"), 2
    )
    for drawn in (_draw_map(torch.rand(2, 2), classes, given=True), _draw_edges([(0, 1, 2.0)], classes)):
        ElementTree.fromstring(shown_in(drawn, name))
    blocks = [TableBlock(name, [name], [[name]]), Note(name), Code(name, name)]
    text = to_html(Report(name, name, [Section(name, blocks)]))
    assert text.count("bold") >= 8
    assert character not in text


def shown_in(figure, label):
    with drawing():
        return inline_svg(figure, "p", label)


def test_control_characters_are_left_out_of_picture_files(tmp_path):
    with drawing():
        save_figure(_draw_bars([CONTROL], [(CONTROL, {CONTROL: 0.5}), ("b", {})]), tmp_path / "a.svg")
    assert "[31mred" in "".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())


def test_letters_that_no_font_has_are_told_where_they_become_boxes(tmp_path, caplog):
    def draw(names, ending):
        caplog.clear()
        with drawing():
            save_figure(_draw_bars(names, [(name, {name: 0.5}) for name in names]), tmp_path / f"a.{ending}")
        return [record.getMessage() for record in caplog.records]

    lacking = ["\U00013000", "\U00013001"]  # Egyptian hieroglyphs
    assert draw(lacking, "png") == [
        "a.png: 2 letters that this machine's fonts lack: install such a font, or draw as svg"
    ]
    assert draw(lacking, "svg") == draw(["a", "b"], "png") == []


def test_the_page_is_accessible_to_screen_readers(row_page):
    _, page = row_page
    assert page.elements[0][0] == "html" and page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1 and page.texts["title"] == page.texts["h1"] == ["galit on cora"]
    levels = [int(name[1]) for name, _, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    drawn = page.all("svg")
    assert len(drawn) >= 10
    labels = [svg["aria-label"] for svg in drawn]
    assert all(svg["role"] == "img" for svg in drawn) and all(len(label) > 30 for label in labels)
    assert len(set(labels)) == len(labels)
    assert len(page.all("caption")) == len(page.all("table")) >= 5
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))


def test_results_are_shown_beside_published_ones(row_page):
    _, page = row_page
    row = page.texts["td"]
    assert "85.00 ± 1.00" in row and "85.10 ± 0.60" in row and "met" in row
    assert any("settings searched on two cores" in text for text in page.texts["p"])
    curve = next(svg["aria-label"] for svg in page.all("svg") if "Validation accuracy" in svg["aria-label"])
    assert "3 runs, mean" in curve and "best epoch (7, 7, 7)" in curve
    # 0.84, 0.85, 0.86 + 0.01 + 0, 0.001, 0.002 at the best epoch
    assert "86.1 at the best epoch" in curve


def test_the_page_shows_the_commands_and_settings_of_the_run(row_page):
    _, page = row_page
    assert "graphzoo reproduce galit cora" in page.texts["code"]
    own = next(text for text in page.texts["code"] if " fit " in text)
    assert own == "graphzoo fit --model galit --data cora --seed 0 --model.encoder.dropout=0.25"
    assert (
        "model.encoder.dropout" in page.texts["th"]
        and "0.25" in page.texts["td"]
        and "0.7" in page.texts["td"]
    )
    assert "adcef2099801548a" in page.texts["td"] and "92,231" in page.texts["td"]


def test_long_tables_are_cut_and_name_the_file_with_the_rest(row_page):
    _, page = row_page
    assert any(
        re.search(r"37 more rows are in .*evaluation/test/worst.csv", text) for text in page.texts["p"]
    )
    assert any("the table has 40 more" in text for text in page.texts["figcaption"])
    assert sum(text == "likes" for text in page.texts["td"]) == 8
    assert sum(text.startswith("r") and text[1:].isdecimal() for text in page.texts["th"]) == 20


def test_styles_for_light_dark_and_print(row_page):
    text, page = row_page
    [style] = page.texts["style"]  # pictures have no style of their own
    assert "@media screen and (prefers-color-scheme:dark)" in style and "@media print" in style
    assert 'name="viewport"' in text
    pictures = text[text.index("<svg") :]
    for light, _ in THEME.values():
        assert light not in pictures  # the page sets the colours of pictures
    assert "var(--c0)" in pictures and "var(--ink)" in pictures


def test_thousands_of_points_are_drawn_as_a_bitmap(tmp_path):
    import math

    import pandas

    from graphzoo.analysis import Table

    points = pandas.DataFrame(
        [(math.sin(i * i), math.cos(3 * i), str(i % 7)) for i in range(2000)], columns=["x", "y", "class"]
    )
    run = write_evaluation(
        write_run(tmp_path / "run"), (Table("embedding", "States", "scatter", points, "x", ("y",), "class"),)
    )
    text = page_of(run)
    assert "data:image/png;base64," in text and len(text) < 300_000


@pytest.mark.parametrize("kind", [table.name for table in every_kind()])
def test_every_kind_of_table_is_drawn(kind):
    table = next(table for table in every_kind() if table.name == kind)
    blocks = evaluation_blocks([table], Path("run/evaluation/test"), "g1")
    drawn = [block for block in blocks if isinstance(block, Picture)]
    assert len(drawn) == (0 if table.kind == "table" else 1)
    assert any(isinstance(block, TableBlock) for block in blocks) == (table.kind in ("table", "bars"))
    page = Page(to_html(Report("one", "", [Section("all", blocks)])))
    labels = [svg["aria-label"] for svg in page.all("svg")]
    assert all(label.startswith(f"{table.title}.") for label in labels) and len(labels) == len(drawn)
    shown = "".join(page.texts.get("text", []))
    expected = {
        "classes": "$a$ theory",
        "relations": "r59[31mred",
        "confusion": "14",
        "ranks": "6–10",
        "hits": "100",
    }
    assert expected.get(kind, "") in shown and (not drawn or len(page.texts["text"]) >= 2)


def test_labels_are_shown_instead_of_names():
    """Labels replace names in bars, tables and at Weights & Biases; the file has both."""
    from graphzoo.callbacks.wandb_run import wandb_values

    data = {"relation": ["P1", "P2"], "mrr": [0.5, 0.25], "relation_label": ["born in", ""]}
    table = Table.of("relations", "MRR", "bars", data, x="relation", y=("mrr",))
    picture, rows = evaluation_blocks([table], Path("run/evaluation/test"), "g1")
    assert "Highest mrr: born in with 0.5; lowest: P2 with 0.25" in picture.alt
    assert (rows.columns, rows.rows) == (["relation", "mrr"], [["born in", "0.5"], ["P2", "0.25"]])
    assert rows.note == "With identifiers: run/evaluation/test/relations.csv"
    sent = wandb_values(table)
    assert sent["evaluation/relations"].columns == list(data)
    assert sent["evaluation/relations_mrr"].table.data == [["born in", 0.5], ["P2", 0.25]]


def test_several_settings_share_a_table_and_a_picture(tmp_path):
    write_row(tmp_path / "row")
    write_run(tmp_path / "other", model="gcn", recipe="", test=0.81)
    page = Page(page_of(tmp_path / "row", tmp_path / "other"))
    assert page.texts["h1"] == ["galit and gcn on cora"]
    assert {"galit on cora", "gcn on cora"} <= set(page.texts["h2"])
    curve = next(svg["aria-label"] for svg in page.all("svg") if "Validation accuracy" in svg["aria-label"])
    assert "galit on cora, 3 runs" in curve and "gcn on cora, one run" in curve
    assert {"85.00 ± 1.00", "81.00"} <= set(page.texts["td"])


def shown_curves(page):
    found = [svg["aria-label"] for svg in page.all("svg") if svg["aria-label"].startswith("Validation ")]
    return [label.partition(" over epochs")[0] for label in found]


def test_every_task_keeps_its_curves_and_scores(tmp_path):
    """The metrics of one task must not replace those of another."""
    kg = {
        "test/mrr": 0.31, "test/hits@1": 0.21, "test/hits@3": 0.33, "test/hits@10": 0.44, "test/mr": 17.5
    }  # fmt: skip
    links = kg | {"test/hits@50": 0.61, "test/hits@100": 0.71, "test/auroc": 0.8125, "test/ap": 0.7775}
    del links["test/mr"]
    write_run(tmp_path / "kg", model="knowformer", data="umls", recipe="", metric="mrr", figures=kg)
    write_run(tmp_path / "link", model="pencil", data="own", recipe="", metric="auroc", figures=links)
    write_run(tmp_path / "node", test=0.8375)
    for others, judges in (
        (["kg"], {"Validation MRR"}),
        (["link"], {"Validation ROC-AUC %"}),
        (["kg", "link"], {"Validation MRR", "Validation ROC-AUC %"}),
    ):
        page = Page(page_of(*(tmp_path / name for name in others), tmp_path / "node"))
        assert set(shown_curves(page)) == judges | {"Validation accuracy %", "Validation loss"}
        tables = [text for text in page.texts["caption"] if text.startswith("Test results of ")]
        assert (
            len(tables) == len(set(tables)) == len(others) + 1 and "Test results of galit on cora" in tables
        )
        assert page.texts["td"].count("83.75") == 1
        expected = {"kg": {"17.5"}, "link": {"81.25", "77.75"}}
        assert set().union(*(expected[name] for name in others)) <= set(page.texts["td"])
        # A single line in a picture also has a legend.
        texts = [picture for picture in page.texts["text"] if picture == "galit on cora"]
        assert len(texts) >= 2


def test_the_curve_is_that_of_the_monitored_metric(tmp_path):
    run = write_run(tmp_path / "run")
    header, *rows = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("\n".join([header + ",val/mrr", *(f"{row},0.5" for row in rows), ""]))
    assert "Validation accuracy %" in shown_curves(Page(page_of(run)))
    (run / "results.json").unlink()
    assert "Validation MRR" in shown_curves(Page(page_of(run)))


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_bars_of_ranks_do_not_overlap(most):
    rank = torch.arange(1, most + 1).double()
    bins = _histogram(torch.cat([rank, rank]), torch.arange(2 * most) >= most)
    table = Table(
        "ranks", "Ranks: above `from`, up to `to`", "histogram", DataFrame(bins), "from", ("head", "tail")
    )
    [picture] = evaluation_blocks([table], Path("x"), "g1")
    with drawing():
        figure = picture.draw()
        figure.draw_without_rendering()
    bars = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in figure.axes[0].patches)
    assert len(bars) == 2 * len(bins["to"])
    assert all(end <= start + 1e-9 for (_, end), (start, _) in zip(bars, bars[1:], strict=False))
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels == {1: ["1"], 2: ["1", "2"], 3: ["1", "2", "3"], 5: ["1", "2", "3", "4–5"]}[most]


@pytest.mark.parametrize("order", [("head", "tail"), ("tail", "head")])
def test_head_and_tail_have_the_same_colours_in_every_picture(order):
    """Their order in a table must not change their colours."""
    rows = [("likes", side, 3, 0.5) for side in ("both", *order)]
    relations = DataFrame(rows, columns=["relation", "direction", "triples", "mrr"])
    ranks = DataFrame({"from": [0, 1], "to": [1, 2], "head": [5, 3], "tail": [2, 4]})
    tables = [
        Table("relations", "MRR of each relation", "bars", relations, "relation", ("mrr",), "direction"),
        Table("ranks", "Ranks of the answers", "histogram", ranks, "from", order),
    ]
    found = []
    for block in evaluation_blocks(tables, Path("x"), "g1"):
        if isinstance(block, Picture):
            with drawing():
                [legend] = block.draw().legends
            shown = zip(legend.get_texts(), legend.get_patches(), strict=True)
            found.append({text.get_text(): to_hex(patch.get_facecolor()) for text, patch in shown})
    with drawing():
        attended = [
            bar.get_facecolor() for bar in _draw(["a", "b"], [2.0, 1.0], ["head", ""]).axes[0].patches
        ]
    assert found == [{"head": COLORS[0], "tail": COLORS[1]}] * 2
    assert to_hex(attended[0]) == COLORS[0] and to_hex(attended[1]) not in COLORS[:2]


def test_series_of_a_picture_have_different_colours():
    for names in (["both", "tail", "head"], ["both", "head"], ["a", "b", "c"], ["tail", "a"]):
        found = colors_of(names)
        assert len(set(found)) == len(names)


@pytest.mark.parametrize(("low", "high"), [(-1.2, 0.9), (-12000.5, 9000), (0.001, 0.0092), (0, 1)])
def test_ticks_of_scores_do_not_touch(low, high):
    edges = [low + (high - low) * part / 40 for part in range(41)]
    bins = {"from": edges[:-1], "to": edges[1:], "positives": range(40), "negatives": range(40, 0, -1)}
    both = ("positives", "negatives")
    table = Table("scores", "Scores", "histogram", DataFrame(bins), "from", both)
    [picture] = evaluation_blocks([table], Path("x"), "g1")
    with drawing():
        figure = picture.draw()
        figure.draw_without_rendering()
        axes = figure.axes[0]
        boxes = [text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()]
    assert axes.get_xlabel() == "score" and len(boxes) >= 3
    letter = boxes[0].height * 0.6
    assert all(right.x0 - left.x1 > letter for left, right in zip(boxes, boxes[1:], strict=False))


def test_scores_with_whole_edges_are_not_drawn_as_ranks():
    bins = {"from": [-1, 0, 2], "to": [0, 2, 3], "positives": [1, 2, 3], "negatives": [3, 2, 1]}
    both = ("positives", "negatives")
    [picture] = evaluation_blocks(
        [Table("scores", "Scores", "histogram", DataFrame(bins), "from", both)], Path("x"), "g1"
    )
    with drawing():
        axes = picture.draw().axes[0]
    assert all(patch.get_data().edges.tolist() == [-1, 0, 2, 3] for patch in axes.patches)
    assert len(axes.patches) == 4


def test_runs_of_other_depths_make_a_depth_curve(tmp_path):
    for depth, test in ((1, 0.7), (2, 0.8), (4, 0.9)):
        write_run(tmp_path / f"d{depth}", test=test, changed={"model.encoder.num_layers": depth})
    write_run(tmp_path / "wide", changed={"model.encoder.hidden_channels": 8, "model.encoder.num_layers": 3})
    page = Page(page_of(tmp_path))
    depth = next(svg["aria-label"] for svg in page.all("svg") if "layers and" in svg["aria-label"])
    assert "galit on cora, layers and acc: 1: 0.7, 2: 0.8, 4: 0.9." in depth and "3:" not in depth
    assert "Test accuracy % over layers" in page.texts["span"] and "Depth" in page.texts["h2"]
    write_run(tmp_path / "short", test=0.3, changed={"model.encoder.num_layers": 2, "trainer.max_epochs": 2})
    page = Page(page_of(tmp_path))
    depth = next(svg["aria-label"] for svg in page.all("svg") if "layers and" in svg["aria-label"])
    assert "1: 0.7, 2: 0.8, 4: 0.9." in depth, "not of another training"
    single = Page(page_of(tmp_path / "d1", tmp_path / "wide"))
    assert "Depth" not in single.texts["h2"]


def test_the_depth_curve_shows_the_first_metric_of_the_results(tmp_path):
    """Each task has its own first metric."""
    figures = {"test/mrr": 0.25, "test/hits@50": 0.5, "test/auroc": 0.75}
    kept = {"model": "pencil", "recipe": "", "data": "cora", "metric": "mrr"}
    for depth in (1, 2):
        changed = {"model.encoder.num_layers": depth}
        write_run(tmp_path / f"d{depth}", **kept, figures=figures, changed=changed)
    for depth in (1, 2):  # another task, with a published score
        changed = {"model.encoder.num_layers": depth, "model.lr": 0.5}
        write_run(tmp_path / f"n{depth}", test=0.75 + depth / 100, changed=changed)
    page = Page(page_of(tmp_path))
    alts = [svg["aria-label"] for svg in page.all("svg") if "layers and" in svg["aria-label"]]
    assert sorted(alts) == [
        "galit on cora, layers and acc: 1: 0.76, 2: 0.77.",
        "pencil on cora, layers and mrr: 1: 0.25, 2: 0.25.",
    ]


def test_a_run_in_training_says_so(tmp_path):
    page = Page(page_of(write_run(tmp_path / "run", finished=False)))
    assert any("no test results yet" in text for text in page.texts["p"])
    assert any("The run is not finished yet" in text for text in page.texts["p"])
    assert any("has no folder evaluation" in text for text in page.texts["p"])


def test_a_run_without_a_test_is_not_called_unfinished(tmp_path):
    """`fit --no-test` writes no results.json, and `graphzoo validate` one without test scores."""
    done = write_run(tmp_path / "done", finished=False, epochs=6, changed={"trainer.max_epochs": 6})
    validated = write_run(tmp_path / "validated", figures={"val/acc": 0.8})
    begun = write_run(tmp_path / "begun", finished=False, epochs=5, changed={"trainer.max_epochs": 6})
    stopped = write_run(tmp_path / "stopped", finished=False, epochs=5, changed={"trainer.max_epochs": -1})
    for run in (done, validated, stopped):
        page = Page(page_of(run))
        assert any(text.endswith("The run was not tested.") for text in page.texts["p"])
        assert any(f"graphzoo test --ckpt_path {run}" in text for text in page.texts["p"])
        assert not any("finished" in text for text in page.texts["p"])
    assert any("The run is not finished yet" in text for text in Page(page_of(begun)).texts["p"])
    again = write_run(tmp_path / "again", finished=False, epochs=5, seed=1, changed={"trainer.max_epochs": 6})
    own = write_run(tmp_path / "own", changed={"trainer.max_epochs": 6, "model.encoder.dropout": 0.1})
    page = Page(page_of(begun, again, own))
    assert page.texts["td"].count("not finished") == 2
    assert any("No run is finished yet." in text for text in Page(page_of(begun, again)).texts["p"])


def test_times_are_formatted_by_duration(tmp_path):
    run = write_run(tmp_path / "run")
    result = json.loads((run / "results.json").read_text()) | {"fit_seconds": 200_000}
    (run / "results.json").write_text(json.dumps(result))
    assert "2.3 d" == duration(200_000) and "2.3 d" in Page(page_of(run)).texts["td"]


def test_a_heuristic_has_no_curves_and_no_model(tmp_path):
    run = write_run(tmp_path / "run", model="heuristic.ra", recipe="", metric="mrr")
    result = json.loads((run / "results.json").read_text())
    changes = {
        "command": "test",
        "num_parameters": 0,
        "best_epoch": None,
        "fit_seconds": None,
        "epochs": None,
    }
    (run / "results.json").write_text(json.dumps(result | changes))
    (run / "metrics.csv").unlink()
    page = Page(to_html(build_report(group_records(find_records([run])))))
    assert page.texts["h2"] == ["Results", "Test split in detail", "How it was made"]
    assert not any("best validation" in text for text in page.texts["p"])
    assert any(text.startswith("graphzoo test --model heuristic.ra") for text in page.texts["code"])


def test_the_same_runs_give_the_same_page(tmp_path):
    run = write_evaluation(write_run(tmp_path / "run"))
    assert page_of(run) == page_of(run)


def test_shortened_names_of_settings_differ():
    """Cut at their ends, they would be equal in the legend."""
    names = [f"pencil on citeseer-link (citeseer-link-heart-cpu), num_layers={depth}" for depth in (1, 2)]
    short = [fitted(name) for name in names]
    assert len(set(short)) == 2 and max(map(len, short)) == 46 and fitted(names[0], 100) == names[0]


def test_characters_forbidden_in_xml_are_left_out_of_pictures():
    """Also in text that is not shortened, such as that of a legend."""
    from matplotlib import pyplot

    with drawing():
        figure, axis = pyplot.subplots()
        axis.plot([0, 1], label="a\x1b[31m\x00b\ufffe")
        axis.legend()
        picture = inline_svg(figure, "p", "a picture")
    assert "a[31mb" in "".join(ElementTree.fromstring(picture).itertext())
    assert not any(character in picture for character in "\x1b\x00\ufffe")


def test_formats_of_numbers_in_cells():
    assert [_cell(value) for value in (math.inf, -math.inf, math.nan, 3.0, 0.123456, 1234)] == [
        "inf", "-inf", "", "3", "0.1235", "1,234",
    ]  # fmt: skip
