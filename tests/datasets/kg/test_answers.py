"""`AnswerIndex`, compared with a dictionary of sets."""

from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphzoo.datasets import AnswerIndex


def brute_force(triples, num_relations):
    answers = defaultdict(set)
    for head, relation, tail in triples:
        answers[head, relation].add(tail)
        answers[tail, relation + num_relations].add(head)
    return answers


@settings(max_examples=60)
@given(data=st.data(), num_entities=st.integers(1, 6), num_relations=st.integers(1, 3))
def test_equals_a_dictionary_of_sets(data, num_entities, num_relations):
    triple = st.tuples(
        st.integers(0, num_entities - 1), st.integers(0, num_relations - 1), st.integers(0, num_entities - 1)
    )
    triples = data.draw(st.lists(triple, max_size=20))
    index = AnswerIndex(torch.tensor(triples, dtype=torch.int64).reshape(-1, 3), num_entities, num_relations)
    expected = brute_force(triples, num_relations)
    everything = torch.cartesian_prod(torch.arange(num_entities), torch.arange(2 * num_relations))
    # in random order and with repetitions; rows are in the order of the batch
    queries = everything[torch.randint(len(everything), (2 * len(everything),))]
    row, entity = index.lookup(queries[:, 0], queries[:, 1])
    counts = index.counts(queries[:, 0], queries[:, 1])
    assert len(index) == sum(map(len, expected.values()))
    pairs = list(zip(row.tolist(), entity.tolist(), strict=True))
    assert pairs == sorted(pairs)
    for number, (head, relation) in enumerate(queries.tolist()):
        known = sorted(expected.get((head, relation), ()))
        assert entity[row == number].tolist() == known
        assert int(counts[number]) == len(known)


def test_empty_batch_and_empty_index():
    none = torch.zeros(0, dtype=torch.int64)
    index = AnswerIndex(torch.tensor([[0, 0, 1]]), 2, 1)
    row, entity = index.lookup(none, none)
    assert row.shape == entity.shape == (0,)
    empty = AnswerIndex(torch.zeros(0, 3, dtype=torch.int64), 2, 1)
    assert empty.counts(torch.tensor([0, 1]), torch.tensor([0, 1])).tolist() == [0, 0]
    assert empty.lookup(torch.tensor([0]), torch.tensor([0]))[0].numel() == 0


@pytest.mark.parametrize(
    ("head", "relation", "what"), [(2, 0, "head"), (-1, 0, "head"), (0, 2, "relation"), (0, -1, "relation")]
)
def test_queries_out_of_range(head, relation, what):
    index = AnswerIndex(torch.tensor([[0, 0, 1]]), 2, 1)
    with pytest.raises(ValueError, match=f"{what} ids must lie in"):
        index.lookup(torch.tensor([head]), torch.tensor([relation]))


@pytest.mark.parametrize("triple", [[2, 0, 0], [0, 1, 0], [0, 0, 2], [-1, 0, 0]])
def test_triples_out_of_range(triple):
    with pytest.raises(ValueError, match="ids must lie in"):
        AnswerIndex(torch.tensor([triple]), 2, 1)


def test_wrong_shape_and_too_large():
    with pytest.raises(ValueError, match=r"\[n, 3\]"):
        AnswerIndex(torch.zeros(3, 2, dtype=torch.int64), 2, 1)
    with pytest.raises(ValueError, match="too many"):
        AnswerIndex(torch.zeros(0, 3, dtype=torch.int64), 2**30, 4)
    assert len(AnswerIndex(torch.zeros(0, 3, dtype=torch.int64), 2**30, 3)) == 0, "N * 2R * N is below 2^63"
