"""The tables of `graphzoo predict`, part by part."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from graphzoo.inference import KGModel, LinkModel, NodeModel
    from graphzoo.inference.explain import Direction


def answer_tables(model: KGModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """Answers to `--queries`, with their explanations where `--explain` asks for them."""
    from graphzoo.datasets.kg.triples import triples_from_table
    from graphzoo.inference.queries import encode_facts, encode_queries, read_names, read_queries

    options: dict[str, Any] = {"k": args.top_k or 10, "filter_known": args.known or "mark"}
    if args.candidates is not None:
        entities = model.vocabularies[0]
        options["candidates"] = read_names(args.candidates, entities, skips=args.skip_unknown)
    queries = encode_queries(read_queries(args.queries), *model.vocabularies, skips=args.skip_unknown)
    answers = model.answer(queries, batch_size=args.batch_size, **options)
    if args.explain is None:
        return answers

    def explanations(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        facts = triples_from_table(table[["head", "relation", "tail"]])
        triples = encode_facts(facts, *model.vocabularies)
        return _explained(model, triples, args.explain, table["direction"].tolist())

    return (part for table in answers for part in explanations(table))


def score_tables(model: KGModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A score and a rank for each triple of `--score`."""
    from graphzoo.inference.queries import encode_facts, read_facts

    facts = read_facts(args.score, *model.vocabularies)
    triples = encode_facts(facts, *model.vocabularies, skips=args.skip_unknown)
    if args.explain is not None:
        return _explained(model, triples, args.explain)
    return model.judge(triples, batch_size=args.batch_size)


def _explained(
    model: KGModel, triples: Tensor, k: int, directions: Sequence[Direction] | None = None
) -> Iterator[pd.DataFrame]:
    """A table for each of given facts [3, n]; an empty one where there are none."""
    from graphzoo.inference.explain import explanation_table

    if not triples.shape[1]:
        yield explanation_table([])
    for explanation in model.explanations(triples, directions, k=k):
        yield explanation.to_table()


def label_tables(model: NodeModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A label for every node, or for those of `--nodes`."""
    from graphzoo.inference.queries import read_names

    skips = args.skip_unknown
    nodes = None if args.nodes is None else read_names(args.nodes, model.names, skips=skips)
    return model.predict_batches(nodes, probabilities=args.probabilities, embeddings=args.embeddings)


def partner_tables(model: LinkModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """The likeliest partners of `--nodes`."""
    from graphzoo.inference.queries import read_names

    names = model.names
    given = (args.nodes, args.candidates)
    nodes, candidates = (path and read_names(path, names, skips=args.skip_unknown) for path in given)
    return model.predict_batches(
        nodes=nodes,
        k=args.top_k or 10,
        known=args.known or "drop",
        candidates=candidates,
        batch_size=args.batch_size,
    )


def pair_tables(model: LinkModel, args: argparse.Namespace) -> Iterator[pd.DataFrame]:
    """A score for each pair of `--score`."""
    from graphzoo.datasets.link.named_pairs import read_pairs

    pairs = read_pairs(args.score)
    return model.score_batches(pairs, batch_size=args.batch_size, skips=args.skip_unknown)
