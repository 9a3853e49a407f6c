"""`graphzoo predict`: queries or names in, answers or labels out; arguments are checked before torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from graphzoo.errors import UsageError, shorten, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from graphzoo.inference import KGModel, NodeModel

__all__ = ["predict_main"]

_LINES = 6
_EPILOG = """\
A run of knowledge-graph completion takes --queries or --score:
queries   one per line: head TAB relation TAB ?  or  ? TAB relation TAB tail  or  head TAB relation
          (commas in a .csv file; a header of head, relation, tail may name the columns; .gz too)
answers   head, relation, tail, direction, rank, score, probability, known; label, if there are labels

A run of node classification labels every node, or those of --nodes: node, label, probability

graphzoo predict --ckpt_path runs/knowformer-umls/RUN --queries q.tsv --top-k 10 --out answers.parquet
graphzoo predict --ckpt_path runs/galit-cora/RUN --out labels.parquet
"""
_ONE_OF = "give either --queries FILE (top answers) or --score FILE (scores of given facts)"
_QUERY_OPTIONS = ("queries", "score", "top_k", "known", "candidates", "batch_size")
_NODE_OPTIONS = ("nodes", "probabilities", "embeddings")


class _Parser(argparse.ArgumentParser):
    """argparse that answers a mistake by one or two lines instead of its usage text."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nSee graphzoo predict --help")


def predict_main(argv: Sequence[str] | None = None) -> int:
    """Run `graphzoo predict`.

    Args:
        argv: Arguments after the command's name; those of the process by default.

    Returns:
        0; 1 if scoring or writing failed; 2 for wrong arguments, files or names (nothing was computed then);
        130 after Ctrl-C.
    """
    try:
        return _run(_parse(list(sys.argv[1:] if argv is None else argv)))
    except UsageError as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(str(error), 1)
    except (MemoryError, RuntimeError) as error:
        return _fail(_explain(error), 1)
    except KeyboardInterrupt:
        return _fail("stopped; no output file was written or changed", 130)


def _fail(message: str, status: int) -> int:
    sys.stderr.write(shorten(f"graphzoo predict: {message}", lines=_LINES) + "\n")
    return status


def _explain(error: MemoryError | RuntimeError) -> str:
    text = str(error).partition("\n")[0]
    # the CPU allocator raises a plain RuntimeError, told apart by its text only
    lower = text.lower()
    if isinstance(error, MemoryError) or "out of memory" in lower or "can't allocate memory" in lower:
        return f"out of memory ({text or 'no details'})\nGive a smaller --batch-size, or --device cpu"
    return f"{type(error).__name__}: {text}"


def _parser() -> _Parser:
    parser = _Parser(
        prog="graphzoo predict",
        description="Answer queries about a knowledge graph, score facts, label nodes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--ckpt_path", required=True, metavar="RUN", help="run directory, checkpoint file, best or last")
    add("--queries", type=Path, metavar="FILE", help="queries to answer")
    add("--score", type=Path, metavar="FILE", help="facts to score instead: head, relation, tail")
    add("--nodes", type=Path, metavar="FILE", help="label these nodes only, one name per line")
    add("--probabilities", action="store_true", help="a column with the probability of every class")
    add("--embeddings", action="store_true", help="a column for every channel of the nodes' states")
    add("--out", default="-", metavar="FILE", help=".parquet, .csv, .tsv or .jsonl (default: print)")
    add("--overwrite", action="store_true", help="replace the output file if it exists")
    add("--top-k", "--top_k", type=_positive, metavar="K", help="answers per query (default 10)")
    known = ("mark", "drop", "keep")
    add("--known", choices=known, help="known facts: mark in a column (default), drop, or keep unmarked")
    add("--candidates", type=Path, metavar="FILE", help="answer with these entities only, one per line")
    add(
        "--data.path",
        dest="data",
        nargs="+",
        metavar="PATH",
        help="predict on this graph: folder, files or data set name",
    )
    add("--batch-size", "--batch_size", type=_positive, metavar="B", help="queries scored at a time")
    add("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, ...")
    add("--trust", action="store_true", help="import unregistered classes that the checkpoint names")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = _parser()
    options = {option for action in parser._actions for option in action.option_strings}
    for token in argv:
        name = token.partition("=")[0]
        if name.startswith("--") and name not in options:
            raise UsageError(
                f"unknown option {name}\n{suggestion(name, options) or 'See graphzoo predict --help'}"
            )
    arguments = parser.parse_args(argv)
    if arguments.queries is not None and arguments.score is not None:
        raise UsageError(_ONE_OF)
    if arguments.score is not None:
        for name in ("top_k", "known", "candidates"):
            if getattr(arguments, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} belongs to --queries; --score takes facts as they are"
                )
    for path in (arguments.queries, arguments.score, arguments.candidates, arguments.nodes):
        if path is not None and not path.exists():
            raise UsageError(f"{path}: no such file")
    return arguments


def _check_kind(arguments: argparse.Namespace, *, labels_nodes: bool) -> None:
    """Refuse options that belong to the other kind of run, and a completion run without a question."""
    refused = _QUERY_OPTIONS if labels_nodes else _NODE_OPTIONS
    for name in refused:
        if getattr(arguments, name) not in (None, False):
            option = "--" + name.replace("_", "-")
            kinds = ("knowledge-graph completion", "node classification")
            belongs, is_run = kinds if labels_nodes else kinds[::-1]
            raise UsageError(f"{option} is for runs of {belongs}; {arguments.ckpt_path} is one of {is_run}")
    if not labels_nodes and arguments.queries is None and arguments.score is None:
        raise UsageError(_ONE_OF)


def _labels_nodes(checkpoint: Path) -> bool | None:
    """What the files beside a checkpoint say of its task; None where only it knows itself."""
    folder = checkpoint.absolute().parent.parent / "graph"
    if (folder / "knowledge_graph.npz").is_file():
        return False
    if (folder / "meta.json").is_file():
        return '"kind": "nodes"' in (folder / "meta.json").read_text(encoding="utf-8")
    return None


def _run(arguments: argparse.Namespace) -> int:
    from graphzoo.checkpoints import locate
    from graphzoo.inference.writers import STANDARD_OUTPUT, check_output, write_tables

    check_output(arguments.out, overwrite=arguments.overwrite)
    checkpoint, _ = locate("predict", arguments.ckpt_path)
    labels_nodes = _labels_nodes(checkpoint)
    if labels_nodes is not None:
        _check_kind(arguments, labels_nodes=labels_nodes)

    # Everything above answers at once; from here on torch is needed.
    from graphzoo.inference import NodeModel, load

    model = load(checkpoint, arguments.data, device=arguments.device, trust=arguments.trust)
    _check_kind(arguments, labels_nodes=isinstance(model, NodeModel))
    if isinstance(model, NodeModel):
        tables = _labels(model, arguments)
    else:
        tables = _answers(model, arguments) if arguments.score is None else _scores(model, arguments)
    count = write_tables(tables, arguments.out)
    if arguments.out != STANDARD_OUTPUT:
        sys.stderr.write(f"graphzoo predict: {count:,} rows in {arguments.out}\n")
    return 0


def _answers(model: KGModel, arguments: argparse.Namespace) -> Iterator[pd.DataFrame]:
    from graphzoo.inference.queries import encode_queries, read_names, read_queries

    options: dict[str, Any] = {"k": arguments.top_k or 10, "filter_known": arguments.known or "mark"}
    if arguments.candidates is not None:
        options["candidates"] = read_names(arguments.candidates)
    queries = encode_queries(read_queries(arguments.queries), *model.vocabularies)
    return model.answer(queries, batch_size=arguments.batch_size, **options)


def _scores(model: KGModel, arguments: argparse.Namespace) -> Iterator[pd.DataFrame]:
    from graphzoo.datasets.triples import read_triples
    from graphzoo.inference.queries import encode_facts

    facts = read_triples(arguments.score)
    triples = encode_facts(facts, *model.vocabularies)
    return model.judge(triples, batch_size=arguments.batch_size)


def _labels(model: NodeModel, arguments: argparse.Namespace) -> Iterator[pd.DataFrame]:
    from graphzoo.inference.queries import read_names

    nodes = None if arguments.nodes is None else read_names(arguments.nodes)
    return model.predict_batches(
        nodes, probabilities=arguments.probabilities, embeddings=arguments.embeddings
    )
