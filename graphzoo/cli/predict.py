"""`graphzoo predict`: queries or names in, answers or labels out; arguments are checked before torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from graphzoo.catalog.settings import value_of_word
from graphzoo.catalog.tasks import TASKS, function_of, inference_task
from graphzoo.catalog.weights import WEIGHTS
from graphzoo.cli.compile_ahead import compiling_ahead
from graphzoo.cli.options import Parser, at_least
from graphzoo.cli.run_word import add_run, run_of
from graphzoo.cli.terminal import fail
from graphzoo.errors import OutOfMemoryError, UsageError, of_system
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import is_out_of_memory
from graphzoo.system.shown import tell, visible

_EPILOG = """\
A run of knowledge-graph completion takes --queries or --score:
queries   one per line: head TAB relation TAB ?  or  ? TAB relation TAB tail  or  head TAB relation
          (commas in a .csv file; a header of head, relation, tail may name the columns; .gz too)
answers   head, relation, tail, direction, rank, score, probability, known; label and relation_label if
          the data have readable names

A run of link prediction takes --nodes or --score:
nodes     one name per line; answers: node, partner, rank, score, probability, known
score     two columns, source and target; answers: source, target, score, probability, known

A run of node classification labels every node, or only those of --nodes:
answers   node, label, probability

graphzoo predict runs/knowformer-umls/RUN --queries q.tsv --top-k 10 --out answers.parquet
graphzoo predict runs/knowformer-umls/RUN --score facts.tsv --explain
graphzoo predict runs/pencil-citeseer-link/RUN --nodes nodes.txt --top-k 10 --out partners.csv
graphzoo predict runs/galit-cora/RUN --out labels.parquet
"""
_OF_DATA = ("train", "valid", "test", "valid_neg", "test_neg", "nodes", "edges")
"""What files of a folder of data are called, without their endings."""
_RANKING = ("top_k", "known", "candidates")
_TASKS = {task.kind: task for task in TASKS.values() if task.inference}


def predict_main(argv: Sequence[str]) -> int:
    """Answer, and return the exit status.

    1 if scoring or writing failed; 2 for wrong arguments, files or names (nothing was computed then); 130
    after Ctrl-C. With `--debug` the error itself, unless that is a mistake of the command line, a file or a
    name.
    """
    try:
        args = _parse(argv)
        with compiling_ahead(args.device) if args.model else nullcontext():
            return _run(args)
    except BrokenPipeError:
        raise  # the reader of `graphzoo predict ... | head` has left, which is not a failure
    except (UsageError, OSError, MemoryError, RuntimeError, KeyboardInterrupt) as error:
        if "--debug" in argv and not isinstance(error, UsageError):
            raise
        return _answer(error)


def _answer(error: BaseException) -> int:
    if isinstance(error, UsageError):
        return fail(str(error))
    if isinstance(error, OSError):
        return fail(*of_system(error))
    if isinstance(error, KeyboardInterrupt):
        return fail("stopped; no output file was written or changed", 130)
    if isinstance(error, OutOfMemoryError):
        return fail(str(error), 1)
    text = str(error).partition("\n")[0]
    if is_out_of_memory(error):
        message = f"out of memory ({text or 'no details'})\nGive a smaller --batch-size, or --device cpu"
        return fail(message, 1)
    return fail(f"{type(error).__name__}: {visible(text)}", 1)


def predict_parser() -> Parser:
    """The options."""
    parser = Parser(
        "predict",
        "RUN [--queries|--score|--nodes FILE] [options]",
        "Predict with a trained model: answer queries about a knowledge graph, find partners of nodes, score "
        "facts or node pairs, or label nodes.",
        _EPILOG,
    )
    count = at_least(1, whole=True)
    add = parser.add_argument
    run = "trained model: run directory, exported folder, checkpoint file, `best` or `last`"
    add_run(parser, run)
    add("--model", choices=sorted(WEIGHTS), help="instead of RUN, use weights that ship with graphzoo")
    add("--queries", type=Path, metavar="FILE", help="answer these queries")
    add("--score", type=Path, metavar="FILE", help="score these facts or node pairs")
    add(
        "--nodes",
        type=Path,
        metavar="FILE",
        help="find partners of these nodes, or label these; one per line",
    )
    add("--probabilities", action="store_true", help="add a column with the probability of each class")
    add("--embeddings", action="store_true", help="add a column for each channel of the nodes' states")
    add(
        "--out",
        default="-",
        metavar="FILE",
        help="write a .parquet, .csv, .tsv or .jsonl file (default: print)",
    )
    formulas = "put a ' in front of text in .csv and .tsv that a spreadsheet would run as a formula"
    add("--spreadsheet", action="store_true", help=formulas)
    add("--overwrite", action="store_true", help="replace the output file if it exists")
    add("--top-k", type=count, metavar="K", help="number of answers per query or node (default 10)")
    known = (
        "answers that the graph contains already: mark them in a column (default for facts), drop them "
        "(default for links), or keep them unmarked"
    )
    add("--known", choices=("mark", "drop", "keep"), help=known)
    add("--candidates", type=Path, metavar="FILE", help="allow only these names as answers, one per line")
    unknown = "leave out lines with names that the graph does not have, with a warning"
    add("--skip-unknown", action="store_true", help=unknown)
    graph = "predict on another graph: a folder, files, or the name of a data set"
    add("--data.path", dest="data", nargs="+", metavar="PATH", help=graph)
    add("--batch-size", type=count, metavar="B", help="number of queries or pairs to score at once")
    explain = (
        "instead of scores, give the K (default 5) most important paths, facts and entities of each answer"
    )
    add("--explain", nargs="?", type=count, const=5, metavar="K", help=explain)
    weight = "weight of the reverse query (t, r^-1, ?) in the score of a fact (default: as in the run)"
    add("--reverse-weight", type=at_least(0), metavar="W", help=weight)
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--trust", action="store_true", help="import any class that the checkpoint names")
    return parser


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    args = predict_parser().read(argv)
    run = run_of("predict", args)
    if (run is None) == (args.model is None):
        weights = f"--model NAME, weights that ship with graphzoo ({', '.join(WEIGHTS)})"
        raise UsageError(f"give either RUN, a trained model, or {weights}")
    args.ckpt_path = run or args.model
    args.data = _listed(args.data)
    if args.score is not None:
        for task in _TASKS.values():
            if "score" in task.options and getattr(args, task.options[0]) is not None:
                raise UsageError(task.needed)
        for name in _RANKING:
            if getattr(args, name) is not None:
                other = "--score takes facts and pairs as they are"
                raise UsageError(f"{_option(name)} belongs to --queries and --nodes; {other}")
    if args.spreadsheet and not args.out.lower().endswith((".csv", ".tsv")):
        raise UsageError(f"--spreadsheet is for --out FILE.csv or FILE.tsv, not {args.out}")
    files = [path for path in (args.queries, args.score, args.candidates, args.nodes) if path is not None]
    if args.skip_unknown and not files:
        raise UsageError("--skip-unknown is for names in a file: --queries, --score, --nodes or --candidates")
    for path in files:
        if not path.exists():
            raise UsageError(f"{path}: no such file")
    return args


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_kind(args: argparse.Namespace, kind: str) -> None:
    """Refuse options that belong to other kinds of run, and a run that needs a question without one."""
    own = _TASKS[kind]
    for name in (name for task in _TASKS.values() for name in task.options if name not in own.options):
        if (value := getattr(args, name)) is not None and value is not False:
            belongs = " or ".join(task.title for task in _TASKS.values() if name in task.options)
            run = f"{args.ckpt_path} is one of {own.title}"
            raise UsageError(f"{_option(name)} is for runs of {belongs}; {run}")
    if own.needed and all(getattr(args, name) is None for name in own.options[:2]):
        raise UsageError(own.needed)


def _kind_beside(checkpoint: Path) -> str | None:
    """The kind of task by the files beside a checkpoint; None if only the checkpoint itself tells."""
    place = checkpoint.absolute().parent
    folder = (place if checkpoint.suffix == ".safetensors" else place.parent) / "graph"
    if (folder / "knowledge_graph.npz").is_file():
        return "kg"
    if (folder / "meta.json").is_file():
        try:
            described = read_json(folder / "meta.json")
        except (OSError, ValueError):
            return None  # loading the model tells what is wrong with it
        kind = described.get("kind") if isinstance(described, dict) else None
        return kind if kind in _TASKS else None
    return None


def _listed(paths: list[str] | None) -> list[str] | None:
    """Several files as words, or as `fit` takes them: one word "[FILE,FILE]"."""
    if paths is None or len(paths) > 1 or not (paths[0].startswith("[") and paths[0].endswith("]")):
        return paths
    with suppress(OSError):  # a list may be too long for a name
        if Path(paths[0]).exists():
            return paths
    listed = value_of_word(paths[0])
    are_names = isinstance(listed, list) and listed and all(isinstance(path, str) for path in listed)
    return listed if are_names else paths


def _inputs(args: argparse.Namespace) -> list[Path]:
    """The files that are read, those of a folder of data among them."""
    from graphzoo.datasets.files.cache import OTHER_NAMES

    given = (args.queries, args.score, args.nodes, args.candidates, args.ckpt_path)
    paths = [Path(path) for path in (*given, *(args.data or ())) if path is not None]
    folders = [Path(path) for path in args.data or () if Path(path).is_dir()]
    inside = [path for folder in folders for path in folder.iterdir()]
    names = {*_OF_DATA, *(name for others in OTHER_NAMES.values() for name in others)}
    return paths + [path for path in inside if path.name.partition(".")[0] in names]


def _run(args: argparse.Namespace) -> int:
    from graphzoo.inference.writers import STANDARD_OUTPUT, check_output, write_tables
    from graphzoo.runs.checkpoints import locate

    check_output(args.out, overwrite=args.overwrite, inputs=_inputs(args))
    checkpoint, _ = locate("predict", args.ckpt_path)
    kind = _kind_beside(checkpoint)
    if kind is not None:
        _check_kind(args, kind)

    # Everything above answers at once; from here on torch is needed.
    from graphzoo.inference import load

    model = load(checkpoint, args.data, device=args.device, trust=args.trust)
    task = inference_task(model)
    _check_kind(args, task.kind)
    if args.reverse_weight is not None:
        model.task.reverse_weight = args.reverse_weight
    answered, scored = task.tables
    tables = function_of(answered if args.score is None else scored)(model, args)
    partners = task.kind == "links" and args.score is None  # their pairs are counted while they are scored
    count = write_tables(tables, args.out, spreadsheet=args.spreadsheet, counts=not partners)
    if args.out != STANDARD_OUTPUT:
        tell(f"graphzoo predict: {count:,} rows in {args.out}\n")
    return 0
