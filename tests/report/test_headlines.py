"""The first sentence of a report, and the order of its sections."""

import pytest
from helpers.report_runs import write_evaluation, write_run

from graphzoo.analysis import Evaluation, Table
from graphzoo.report import Options, build_report, find_records, group_records, to_html
from graphzoo.report.learned import learned

ASKED = {"from": [0, 1, 10], "to": [1, 10, 20]}
TRIPLES = {
    "head": ["Q1", "Q2"], "relation": ["P1", "P2"], "tail": ["Q2", "Q3"],
    "direction": ["tail", "head"], "rank": [3.0, 1.5],
    "head_label": ["Earth", ""], "tail_label": ["", "Mars"], "relation_label": ["near to", ""],
}  # fmt: skip


def outcome(name, **columns):
    return Evaluation("test", {}, (Table.of(name, name, "table", columns),))


def classes(**columns):
    return outcome("classes", **{"class": ["theory", "rules", "nobody"], "support": [50, 150, 0], **columns})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            outcome("ranks", **ASKED, tail=[90, 60, 50], head=[62, 78, 60]),
            "The right tail is first in 45 of 100 queries; heads are harder (31).",
        ),
        (
            outcome("ranks", **ASKED, tail=[9, 0, 1], head=[995, 5, 0]),
            "The right tail is first in 90 of 100 queries; heads are easier (99.5).",
        ),
        (
            outcome("ranks", **ASKED, tail=[5, 5, 0], head=[50, 49, 0]),
            "The right tail is first in 50 of 100 queries; heads are easier (51).",
        ),
        (
            outcome("ranks", **ASKED, tail=[0, 1, 9], head=[0, 10, 90]),
            "The right tail is among the first ten in 10 of 100 queries; heads are as hard (10).",
        ),
        (
            outcome("ranks", **ASKED, tail=[1, 1, 0], head=[0, 0, 0]),
            "The right tail is first in 50 of 100 queries.",
        ),
        (
            classes(recall=[0.64, 0.8666, 0.0]),
            "81 of 100 test nodes get the right class; 'theory' is the hardest (64).",
        ),
        (classes(recall=[0.5, 0.5, 0.0]), "50 of 100 test nodes get the right class."),
        (
            classes(auroc=[0.9, 0.6, float("nan")]),
            "A node with a label scores above one without it in 75 of 100 cases; 'rules' is the hardest "
            "label (60).",
        ),
        (
            outcome("hits", k=[1, 10, 20], hits=[0.2, 0.57, 0.9]),
            "A true link is among the first ten in 57 of 100 cases.",
        ),
        (
            outcome("hits", k=[1, 10, 20, 50], hits=[0, 0.001, 0.03, 0.9]),
            "A true link is among the first 20 in 3 of 100 cases.",
        ),
        (outcome("hits", k=[1, 3], hits=[0.2, 1.0]), "A true link is among the first 3 in 100 of 100 cases."),
        (classes(precision=[0.5, 0.5, 0.0]), ""),
        (outcome("estimates", target=[1.0], predicted=[2.0]), ""),
        (Evaluation("test", {}), ""),
    ],
)  # fmt: skip
def test_scores_are_written_as_a_sentence(found, expected):
    assert learned([found]) == expected


def test_shares_of_several_runs_are_means():
    runs = [classes(recall=[low, 0.9, 0.0]) for low in (0.5, 0.7)]
    assert learned(runs) == "82 of 100 test nodes get the right class; 'theory' is the hardest (60)."
    runs.append(Evaluation("test", {}))
    assert learned(runs).startswith("82 "), "a run whose table is damaged counts for nothing"
    links = [outcome("hits", k=[1, k], hits=[0.5, 1.0]) for k in (10, 20)]
    assert learned(links) == "A true link is first in 50 of 100 cases."
    assert learned([]) == ""


def test_a_report_begins_with_its_sentence_results_and_predictions(tmp_path):
    tables = tuple(Table.of(name, f"Triples {name}", "table", TRIPLES) for name in ("worst", "best"))
    right = classes(recall=[0.64, 0.8666, 0.0]).tables
    run = write_evaluation(write_run(tmp_path / "run"), (*right, *tables))
    report = build_report(group_records(find_records([run])), Options(models=False))
    assert report.lead == (
        "81 of 100 test nodes get the right class; 'theory' is the hardest (64). "
        "Test accuracy %: 80.00; the paper: 85.10 ± 0.60."
    )
    titles = [section.title for section in report.sections]
    early = ["Results", "Predictions", "Test split in detail", "Learning curves", "Speed and memory"]
    assert titles == [*early, "How it was made"]
    worst, best = report.sections[1].blocks
    assert (worst.caption, best.caption) == ("Triples worst", "Triples best")
    assert worst.columns == ["asked", "right answer", "rank"]
    assert worst.rows == [["(Earth, near to, ?)", "Q2", "3"], ["(?, P2, Mars)", "Q2", "1.5"]]
    assert to_html(report).count('<div class="tables"><div>') == 1
    other = write_run(tmp_path / "other", model="gcn", recipe="", test=0.7)
    both = build_report(group_records(find_records([run, other])), Options(models=False))
    own = next(section for section in both.sections if section.title == "galit on cora")
    assert [block.text for block in own.blocks] == [learned([Evaluation("test", {}, right)])]
    assert both.lead == "2 runs of 2 settings."


def test_pictures_of_a_knowledge_graph_model_come_before_the_curves(real_runs):
    def titles(run):
        return [section.title for section in build_report(group_records(find_records([run]))).sections]

    assert titles(real_runs.kg)[:4] == ["Results", "Predictions", "Inside the model", "Test split in detail"]
    shallow = titles(real_runs.shallow)
    assert shallow.index("Predictions") == 1 and shallow.index("Learning curves") < shallow.index(
        "Inside the model"
    )
