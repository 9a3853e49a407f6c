"""The tables of `graphzoo predict`, part by part."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from graphzoo.datasets.kg.triples import Columns
    from graphzoo.inference import KGModel, LinkModel, NodeModel
    from graphzoo.inference.explain import Direction


def answer_tables(model: KGModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """Answers to `--queries`, with their explanations where `--explain` asks for them."""
    from graphzoo.datasets.kg.triples import triples_from_table
    from graphzoo.inference.queries import encode_queries, read_names, read_queries

    options: dict[str, Any] = {"k": args.top_k or 10, "filter_known": args.known or "mark"}
    if args.candidates is not None:
        options["candidates"] = read_names(args.candidates, model.vocabularies[0])
    queries = encode_queries(read_queries(args.queries), *model.vocabularies)
    answers = model.answer(queries, batch_size=args.batch_size, **options)
    if args.explain is None:
        return answers

    def explanations(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        facts = triples_from_table(table[["head", "relation", "tail"]])
        return _explained(model, facts, args.explain, table["direction"].tolist())

    return (part for table in answers for part in explanations(table))


def score_tables(model: KGModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A score and a rank for each triple of `--score`."""
    from graphzoo.inference.queries import encode_facts, read_facts

    facts = read_facts(args.score, *model.vocabularies)
    if args.explain is not None:
        return _explained(model, facts, args.explain)
    triples = encode_facts(facts, *model.vocabularies)
    return model.judge(triples, batch_size=args.batch_size)


def _explained(
    model: KGModel, facts: Columns, k: int, directions: Sequence[Direction] | None = None
) -> Iterator[pd.DataFrame]:
    """A table for each of given facts; an empty one where there are none."""
    import pandas as pd

    from graphzoo.inference.explain import EXPLANATION_COLUMNS
    from graphzoo.inference.queries import encode_facts

    triples = encode_facts(facts, *model.vocabularies)
    if not len(facts):
        yield pd.DataFrame(columns=EXPLANATION_COLUMNS)
    for explanation in model.explanations(triples, directions, k=k):
        yield explanation.to_table()


def label_tables(model: NodeModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A label for every node, or for those of `--nodes`."""
    from graphzoo.inference.queries import read_names

    nodes = None if args.nodes is None else read_names(args.nodes, model.names)
    return model.predict_batches(nodes, probabilities=args.probabilities, embeddings=args.embeddings)


def partner_tables(model: LinkModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """The likeliest partners of `--nodes`."""
    from graphzoo.inference.queries import read_names

    return model.predict_batches(
        nodes=read_names(args.nodes, model.names),
        k=args.top_k or 10,
        known=args.known or "drop",
        candidates=None if args.candidates is None else read_names(args.candidates, model.names),
        batch_size=args.batch_size,
    )


def pair_tables(model: LinkModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A score for each pair of `--score`."""
    from graphzoo.datasets.link.named_pairs import read_pairs

    return model.score_batches(read_pairs(args.score), batch_size=args.batch_size)
