"""Small random evaluation problems shared by the metric tests."""

import pytest
import torch

from graphzoo.types import QueryBatch


def query_batch(queries, targets, known):
    """A batch made of lists: queries [(head, relation)]; targets and known answers [(row, entity)]."""
    targets, known = sorted(targets), sorted(known)
    columns = lambda pairs, i: torch.tensor([pair[i] for pair in pairs], dtype=torch.int64)  # noqa: E731
    return QueryBatch(
        head=columns(queries, 0),
        relation=columns(queries, 1),
        target=columns(targets, 1),
        target_row=columns(targets, 0),
        target_index=torch.arange(len(targets)),
        known_row=columns(known, 0),
        known_entity=columns(known, 1),
    )


def random_batch(seed, *, num_queries=7, num_entities=23, levels=4):
    """Scores with many ties, and a batch with several targets per row, all among the known answers."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (num_queries, num_entities), generator=generator).float() / 3
    known = torch.rand(num_queries, num_entities, generator=generator) < 0.4
    known[0] = True  # all entities are known answers
    known[:, 1] = True
    target = known & (torch.rand(num_queries, num_entities, generator=generator) < 0.5)
    target[1] = False  # a row without targets
    queries = [(row, row % 3) for row in range(num_queries)]
    return scores, query_batch(
        queries, [tuple(p) for p in target.nonzero().tolist()], [tuple(p) for p in known.nonzero().tolist()]
    )


def filter_masks(batch, num_entities):
    """The dense [T, N] masks that `filtered_ranks` takes: the other known answers of each target's row."""
    known = torch.zeros(len(batch), num_entities, dtype=torch.bool)
    known[batch.known_row, batch.known_entity] = True
    mask = known[batch.target_row]
    mask[torch.arange(batch.target.numel()), batch.target] = False
    return mask


@pytest.fixture(scope="session", name="query_batch")
def query_batch_fixture():
    return query_batch


@pytest.fixture(scope="session", name="random_batch")
def random_batch_fixture():
    return random_batch


@pytest.fixture(scope="session", name="filter_masks")
def filter_masks_fixture():
    return filter_masks
