"""`graphzoo plot RUN...`: pictures and an HTML report; arguments are checked before anything heavy."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphzoo.cli.options import Parser
from graphzoo.cli.run_word import add_run, folder_of_run, runs_of
from graphzoo.errors import UsageError
from graphzoo.system.files import write_text_atomically
from graphzoo.system.shown import tell, tell_damaged

if TYPE_CHECKING:
    from graphzoo.report.content import Report


FORMATS = ("html", "png", "svg")
_EPILOG = """\
The page shows results beside the paper's, learning curves, details of the test (classes,
relations, scores), pictures of the model, the settings, and the command that repeats the run.
Runs that differ only in seed or split are drawn together. The page is a single file that needs
no scripts and no network.

graphzoo plot runs/galit-cora/RUN                          report.html
graphzoo plot runs/reproduce/galit-cora --out cora.html    all seeds of a row
graphzoo plot RUN1 RUN2 --format png --out pictures        a file per picture
graphzoo plot RUN --fact "Virus" "causes" "Disease"        what KnowFormer attends to for a fact
"""


def plot_main(argv: Sequence[str]) -> int:
    """Write the page or the pictures; 1 where a damaged run was left out."""
    args = plot_parser().read(argv)
    if args.fact and args.no_model:
        raise UsageError("--fact asks the model, which --no-model leaves out\nDrop one of the two")
    if not (runs := [folder_of_run(word) for word in runs_of(args)]):
        raise UsageError("plot needs a run: graphzoo plot RUN")
    from graphzoo.runs.find import find_records
    from graphzoo.runs.groups import group_records

    if missing := [path for path in runs if not path.exists()]:
        find_records(missing)  # tells which, and the nearest
    target = _target(args)
    damaged: list[UsageError] = []
    groups = group_records(find_records(runs, damaged), damaged)
    from graphzoo.report.build import build_report
    from graphzoo.report.content import Options

    facts = tuple((head, relation, tail) for head, relation, tail in args.fact or ())
    options = Options(not args.no_model, facts, args.device)
    report = build_report(groups, options)
    try:
        page = args.format == "html"
        written = _write_page(report, target) if page else _write_files(report, target, args)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or target}: {error.strerror}\nChoose another --out"
        ) from error
    tell(f"graphzoo plot: {written}\n")
    return tell_damaged("plot", damaged)


def plot_parser() -> Parser:
    """The options."""
    parser = Parser(
        "plot",
        "RUN... [options]",
        "Write a report of one or more runs: results, learning curves, details of the test, and pictures of "
        "the model's attention.",
        _EPILOG,
    )
    add = parser.add_argument
    add_run(
        parser, "run directory, or a folder with several, such as that of `graphzoo reproduce`", several=True
    )
    add(
        "--out",
        metavar="PATH",
        help="page to write (default report.html), or folder for pictures (default pictures)",
    )
    add("--format", choices=FORMATS, help="html: one page (default); png, svg: one file per picture")
    add("--overwrite", action="store_true", help="replace existing files")
    add("--no-model", action="store_true", help="leave out pictures of the model, which is faster")
    parts = ("HEAD", "RELATION", "TAIL")
    add(
        "--fact",
        nargs=3,
        action="append",
        metavar=parts,
        help="show the attention for this fact; may be repeated",
    )
    add("--device", default="cpu", help="device of the model: cpu (default), auto, cuda, ...")
    return parser


def _target(args: argparse.Namespace) -> Path:
    """Where the report goes, refused at once if something is there or it cannot be made."""
    if args.format is None:
        ending = Path(args.out).suffix[1:].lower() if args.out else ""
        if ending in ("png", "svg"):
            raise UsageError(
                f"--out {args.out}: several pictures go into a folder\n"
                f"Write --format {ending} --out {Path(args.out).with_suffix('')}"
            )
        args.format = "html"
    page = args.format == "html"
    target = Path(args.out or ("report.html" if page else "pictures"))
    if page and target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {target}: a page ends in .html\nWrite --out {target}.html, or --format png")
    if page and target.is_dir():
        raise UsageError(f"--out {target} is a folder\nGive a file such as {target / 'report.html'}")
    if not page and target.exists() and not target.is_dir():
        raise UsageError(f"--out {target} is a file\nGive a folder: a file per picture is written into it")
    if page and target.exists() and not args.overwrite:
        raise _there(target, "FILE for another name")
    wanted = target.parent if page else target
    folder = next(each for each in (wanted, *wanted.parents) if each.exists())
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out {target}: {folder} is not writable\nChoose another place")
    return target


def _write_page(report: Report, target: Path) -> str:
    from graphzoo.report.page import to_html

    text = to_html(report)
    write_text_atomically(target, text)
    return f"{target} ({len(text.encode()) / 1000:,.0f} kB, {len(report.pictures)} pictures)"


def _write_files(report: Report, target: Path, args: argparse.Namespace) -> str:
    from graphzoo.report.page import save_pictures

    paths = [target / f"{picture.name}.{args.format}" for picture in report.pictures]
    if not args.overwrite and (there := [path for path in paths if path.exists()]):
        raise _there(there[0], "FOLDER for another place")
    save_pictures(report, target, args.format)
    return f"{len(paths)} pictures in {target}"


def _there(path: Path, other: str) -> UsageError:
    return UsageError(f"{path} exists already\nAdd --overwrite to replace it, or --out {other}")
