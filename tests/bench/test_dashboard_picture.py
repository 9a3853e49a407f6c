"""The picture in docs/wandb.md shows exactly the panels of the dashboard."""

import re
from xml.etree import ElementTree

from benchmarks.dashboard_picture import FIGURES, TASK
from graphzoo.report.dashboard import SECTIONS, panels


def compact(text):
    return re.sub(r"\s", "", text)


def test_the_picture_has_the_panels_of_the_dashboard():
    svg = ElementTree.parse(FIGURES / "dashboard.svg")
    words = {group.get("id"): compact("".join(group.itertext())) for group in svg.iter()}
    titles = {int(name[6:]): text for name, text in words.items() if re.match(r"title-\d", name or "")}
    assert [titles[place] for place in sorted(titles)] == [compact(panel.title) for panel in panels(TASK)]
    everything = compact("".join(svg.getroot().itertext()))
    for section in SECTIONS:
        count = sum(panel.section == section for panel in panels(TASK))
        assert f"{section}{count}" in everything
