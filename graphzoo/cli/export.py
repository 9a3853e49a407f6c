"""`graphzoo export`."""

from __future__ import annotations

from pathlib import Path

from graphzoo.catalog.weights import FORMATS, PROGRAMS
from graphzoo.cli.options import Parser, at_least
from graphzoo.cli.run_word import add_run, run_of
from graphzoo.runs.checkpoints import locate
from graphzoo.system.shown import tell

_USE = {
    "safetensors": "graphzoo.load({!r})",
    "torch.export": "torch.export.load({!r}).module()",
    "onnx": "onnxruntime.InferenceSession({!r})",
}


def export_parser() -> Parser:
    """The options."""
    parser = Parser(
        "export",
        "RUN --out DIR [options]",
        "Write a trained model to a folder that can be shared: weights, settings as JSON, and a model card.",
        "safetensors    weights and settings, for graphzoo.load and Encoder.from_pretrained\n"
        "torch.export   a program that runs with torch alone, for torch.export.load\n"
        "onnx           a program for onnxruntime; needs the extra `onnx`",
    )
    add = parser.add_argument
    add_run(parser, "trained model: run directory, checkpoint file, `best` or `last`")
    add("--out", metavar="DIR", help="folder to write; must be new or empty")
    add("--to", default="safetensors", choices=FORMATS, help="format, see below (default safetensors)")
    add("--license", default="", metavar="NAME", help="licence of the weights, for the model card")
    weight = "weight of reverse queries in the scores of facts (default: as in the run)"
    add("--reverse-weight", type=at_least(0), metavar="W", help=weight)
    add("--trust", action="store_true", help="import any class that the checkpoint names")
    return parser


def export_main(argv: list[str]) -> int:
    """Write the folder."""
    parser = export_parser()
    args = parser.read(argv)
    named = run_of("export", args)
    if named is None or args.out is None:  # told together, as argparse cannot: it knows RUN in two forms
        missing = [name for name, value in (("RUN", named), ("--out", args.out)) if value is None]
        parser.refuse(f"the following arguments are required: {', '.join(missing)}")
    from graphzoo.inference.export import export_run

    run = locate("export", named)[0] if named in ("best", "last") else Path(named)
    folder = export_run(
        run,
        args.out,
        to=args.to,
        licence=args.license,
        reverse_weight=args.reverse_weight,
        trust=args.trust,
    )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    place = str(folder / PROGRAMS.get(args.to, ""))
    use = _USE[args.to].format(place)
    tell(f"{folder}: {len(files)} files, {size / 2**20:.1f} MiB; {use}\n")
    return 0
