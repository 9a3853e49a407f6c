"""Write a report as one HTML file, without scripts, other files or the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from graphzoo import __version__
from graphzoo.report.content import Block, Code, Note, Picture, Report, TableBlock, slug
from graphzoo.report.style import THEME, drawing, inline_svg, printable, save_figure

_PAPER = {"paper": ("#ffffff", "#15161a"), "panel": ("#f4f4f6", "#202127"), "line": ("#d5d5da", "#3a3b42"),
          "muted": ("#5c5c63", "#a9a9b2"), "link": ("#0a58a8", "#7cbcf7"),
          "warn": ("#8a4b00", "#f0b35a")}  # fmt: skip
_LONG, _SHORT = 24, 16
_STYLE = """\
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.3rem;line-height:1.25;margin:2.5rem 0 .5rem;padding-top:.75rem;
border-top:2px solid var(--line)}
h3{font-size:1.1rem;margin:1.75rem 0 .5rem}
h1,h2,h3,p,figcaption,li,.long{overflow-wrap:anywhere}
p{max-width:44rem;margin:.5rem 0}
a{color:var(--link)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;margin:1rem 0;list-style:none}
.lead{font-size:1.1rem;max-width:60rem}
.note{font-size:.9rem;color:var(--muted)}
.warning{border-left:4px solid var(--warn);padding-left:.75rem}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,21rem),1fr));gap:1.5rem;
margin:1rem 0}
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:0 2rem}
.tables>div{min-width:0}
figure{margin:0;min-width:0}
.wide{grid-column:1/-1}
figure svg{display:block;width:100%;max-width:30rem;height:auto}
.wide svg{max-width:60rem}
svg *{stroke-linejoin:round;stroke-linecap:butt}
svg text{font-family:"DejaVu Sans",Verdana,system-ui,sans-serif}
.title{display:block;font-weight:600;margin-bottom:.25rem}
figcaption{font-size:.9rem;color:var(--muted);max-width:30rem}
.table{overflow-x:auto;margin:1rem 0}
.table:focus{outline:2px solid var(--link)}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line)}
thead th{color:var(--muted);font-weight:600}
tbody th{font-weight:400}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.long{min-width:7rem}
.short{white-space:nowrap}
pre{background:var(--panel);padding:.75rem;overflow-x:auto;font-size:.875rem;white-space:pre-wrap;
overflow-wrap:anywhere;border-radius:4px;margin:.25rem 0 1rem}
details{margin:1rem 0}
summary{cursor:pointer;font-weight:600}
footer{margin-top:3rem;color:var(--muted);font-size:.9rem;border-top:1px solid var(--line)}
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}
figure,tr,pre{break-inside:avoid}h2,h3{break-after:avoid}
.pictures{grid-template-columns:repeat(2,1fr)}.table{overflow:visible}}
"""


def save_pictures(report: Report, folder: Path, ending: str) -> None:
    """Write each picture of a report to the file `folder/<its name>.<ending>`, png or svg."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in report.pictures:
        with drawing():
            save_figure(picture.draw(), folder / f"{picture.name}.{ending}")


def to_html(report: Report) -> str:
    """The report as the text of an HTML file.

    Pictures are SVG inside it, and colours follow the reader's light or dark setting.
    """
    from graphzoo.system.progress import progress

    with progress("drawing", total=len(report.pictures)) as done:
        return _page(report, lambda: done(1))


def _page(report: Report, drawn: Callable[[], None]) -> str:
    anchors = _anchors(report)
    body: list[str] = []
    number = 0
    for section, anchor in zip(report.sections, anchors, strict=True):
        level = min(max(section.level, 2), 3)
        body.append(
            f'<section aria-labelledby="{anchor}"><h{level} id="{anchor}">{escape(section.title)}</h{level}>'
        )
        for row, blocks in groupby(section.blocks, key=_row):
            parts = []
            for block in blocks:
                number += 1
                parts.append(_block(block, number))
                if isinstance(block, Picture):
                    drawn()
            body.append(f'<div class="{row}">{"".join(parts)}</div>' if row else "".join(parts))
        body.append("</section>")
    links = [
        f'<li><a href="#{anchor}">{escape(section.title)}</a></li>'
        for section, anchor in zip(report.sections, anchors, strict=True)
        if section.level == 2
    ]
    contents = f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>' if len(links) > 2 else ""
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Names come from data. If one were taken for markup, this policy lets nothing run or be fetched.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{escape(report.title)}</title><style>{_variables()}{_STYLE}</style></head>"
    )
    return printable(
        f"{head}\n<body><header><h1>{escape(report.title)}</h1>"
        f'<p class="lead">{escape(report.lead)}</p></header>'
        f"{contents}<main>" + "\n".join(body) + "</main>"
        f"<footer><p>Written by graphzoo {escape(__version__)}.</p></footer></body></html>\n"
    )


def _variables() -> str:
    pairs = THEME | _PAPER
    light = "".join(f"--{name}:{pair[0]};" for name, pair in pairs.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in pairs.items())
    # The dark theme is for screens only, not for printing.
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
    )


def _anchors(report: Report) -> list[str]:
    """An id for each section, other than those of the pictures."""
    taken = {picture.name for picture in report.pictures}
    anchors: list[str] = []
    for section in report.sections:
        anchor = slug(section.title)
        number = 2
        while anchor in taken:
            anchor = f"{slug(section.title)}-{number}"
            number += 1
        taken.add(anchor)
        anchors.append(anchor)
    return anchors


def _row(block: Block) -> str:
    """The CSS class of the row that a block shares with its neighbours; "" if it has none."""
    if isinstance(block, Picture):
        return "pictures"
    return "tables" if isinstance(block, TableBlock) and block.beside else ""


def _block(block: Block, number: int) -> str:
    if isinstance(block, Picture):
        return _picture(block, f"p{number}")
    if isinstance(block, TableBlock):
        return _table(block)
    if isinstance(block, Code):
        return f'<p class="note">{escape(block.caption)}</p><pre><code>{escape(block.text)}</code></pre>'
    assert isinstance(block, Note)
    return f'<p class="note{" warning" if block.warning else ""}">{escape(block.text)}</p>'


def _picture(picture: Picture, prefix: str) -> str:
    with drawing():
        drawn = inline_svg(picture.draw(), prefix, picture.alt)
    caption = f'<span class="title">{escape(picture.title)}</span>'
    below = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    wide = ' class="wide"' if picture.wide else ""
    return f'<figure{wide} id="{escape(picture.name)}">{caption}{drawn}{below}</figure>'


def _table(table: TableBlock) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        parts = []
        for place, cell in enumerate(row):
            # Long names may break anywhere; short names never do.
            kind = "number" if place in table.numeric else "long" if len(cell) > _LONG else ""
            if not place and not kind and len(cell) <= _SHORT:
                kind = "short"
            number = f' class="{kind}"' if kind else ""
            if tag == "th":
                parts.append(f'<th scope="col"{number}>{_cell(cell)}</th>')
            elif place == 0:
                parts.append(f'<th scope="row"{number}>{_cell(cell)}</th>')
            else:
                parts.append(f"<td{number}>{_cell(cell)}</td>")
        return f"<tr>{''.join(parts)}</tr>"

    head = cells(table.columns, "th")
    rows = "".join(cells(row, "td") for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    # A table can get the focus, so that it can be scrolled by keyboard.
    shown = (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption>{escape(table.caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody></table></div>{note}"
    )
    if table.beside:
        return f"<div>{shown}</div>"
    if not table.folded:
        return shown
    return f"<details><summary>Table: {escape(table.caption)}</summary>{shown}</details>"


def _cell(text: str) -> str:
    """Text of a cell, which may break after "_" and "/", but not before "%" and the "?" of a query."""
    shown = escape(text).replace(" %", "\N{NO-BREAK SPACE}%").replace(", ?)", ",\N{NO-BREAK SPACE}?)")
    return shown.replace("_", "_<wbr>").replace("/", "/<wbr>")
