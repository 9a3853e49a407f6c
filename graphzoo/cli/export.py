"""`graphzoo export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from graphzoo.cli.options import take_flag, take_option
from graphzoo.errors import UsageError, suggestion
from graphzoo.inference.export import FORMATS, export_run
from graphzoo.system.shown import tell

if TYPE_CHECKING:
    pass

__all__ = ["USAGE", "export_main"]


USAGE = (
    "usage: graphzoo export RUN --out DIR [--to safetensors|torch.export] [--license NAME]\n"
    "                       [--reverse-weight W] [--trust]\n\n"
    "safetensors    weights and settings, for graphzoo.load and Encoder.from_pretrained\n"
    "torch.export   a program that runs with torch alone, for torch.export.load"
)


def export_main(argv: list[str]) -> int:
    """Run `graphzoo export`.

    Args:
        argv: RUN (a run directory, a checkpoint in one, `best` or `last`), `--out`, `--to`, `--license` (of
            the weights, for the model card), `--reverse-weight`, `--trust`.

    Returns:
        0.

    Raises:
        UsageError: for a wrong command line, run or folder.
    """
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE + "\n")
        return 0
    out, rest = take_option(argv, "--out", "", USAGE)
    form, rest = take_option(rest, "--to", "safetensors", USAGE)
    licence, rest = take_option(rest, "--license", "", USAGE)
    weight, rest = take_option(rest, "--reverse-weight", "", USAGE)
    trust, rest = take_flag(rest, "--trust")
    if odd := [word for word in rest if word.startswith("-")]:
        raise UsageError(f"unknown option {odd[0]}\n{USAGE}")
    if form not in FORMATS:
        raise UsageError(
            f"unknown format {form!r}\n{suggestion(form, FORMATS) or 'There are: ' + ', '.join(FORMATS)}"
        )
    if len(rest) != 1 or not out:
        raise UsageError(f"export needs one run and --out DIR\n{USAGE}")
    from graphzoo.runs.checkpoints import locate

    run = locate("predict", rest[0])[0] if rest[0] in ("best", "last") else Path(rest[0])
    reverse_weight = _number(weight) if weight else None
    folder = export_run(run, out, to=form, licence=licence, reverse_weight=reverse_weight, trust=trust)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    use = f"graphzoo.load({str(folder)!r})"
    if form == "torch.export":
        use = f"torch.export.load({str(folder / 'model.pt2')!r}).module()"
    tell(f"{folder}: {len(files)} files, {size / 2**20:.1f} MiB; {use}\n")
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--reverse-weight takes a number of at least 0, got {text!r}\n{USAGE}") from None
