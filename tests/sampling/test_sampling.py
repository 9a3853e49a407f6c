import numpy as np
import pytest
import torch
from scipy import stats

from graphzoo.sampling import (
    FactRemover,
    hash_integers,
    hash_numbers,
    normal_from_hash,
    sample_negatives,
    uniform_from_hash,
)


def splitmix(value):
    """The mixing function in Python integers (Steele, Lea and Flood, 2014)."""
    mask = (1 << 64) - 1
    value &= mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def test_hash_is_splitmix64():
    golden, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    for parts in [(0,), (1, 2, 3), (-5, 7), (2**63, 2**40)]:
        state = 0
        for part in parts:
            state = splitmix(((state + golden) & mask) ^ splitmix((part & mask) + golden))
        assert int(hash_integers(*parts)) & mask == hash_numbers(*parts) & mask == state
        for place, part in enumerate(parts):
            tensor = torch.tensor(part - (1 << 64) if part >= 1 << 63 else part)
            mixed = (*parts[:place], tensor, *parts[place + 1 :])
            assert int(hash_integers(*mixed)) & mask == state, "numbers and tensors give other hashes"


def test_hash_broadcasts_and_depends_on_order():
    rows, columns = torch.arange(4)[:, None], torch.arange(5)
    table = hash_integers(9, rows, columns)
    assert table.shape == (4, 5) and table.unique().numel() == 20
    assert int(table[2, 3]) == int(hash_integers(9, 2, 3)) != int(hash_integers(9, 3, 2))
    with pytest.raises(ValueError, match="int64"):
        hash_integers(torch.ones(2))


def test_draws_have_their_distributions():
    bits = hash_integers(1, torch.arange(100_000))
    assert stats.kstest(uniform_from_hash(bits).numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(normal_from_hash(bits).numpy(), "norm").pvalue > 1e-3
    neighbours = normal_from_hash(bits).double()
    assert abs(torch.corrcoef(torch.stack([neighbours[:-1], neighbours[1:]]))[0, 1]) < 0.02


def test_the_largest_draw_stays_below_any_count():
    count = torch.cat([torch.arange(1, 10_000), 2 ** torch.arange(53), 2 ** torch.arange(2, 53) - 1])
    largest = uniform_from_hash(torch.tensor([-1]))
    assert torch.equal((largest * count).long(), count - 1)


def test_negatives_are_uniform_over_the_entities_that_are_not_answers():
    known = [[0, 1, 5], [], [9]]
    row = torch.tensor([0, 0, 0, 2])
    entity = torch.tensor([0, 1, 5, 9])
    drawn, possible = sample_negatives(
        torch.tensor([7, 8, 9]), row, entity, num_entities=10, num_negatives=20_000, seed=0, epoch=1
    )
    assert possible.all()
    for b, answers in enumerate(known):
        counts = torch.bincount(drawn[b], minlength=10)
        free = [e for e in range(10) if e not in answers]
        assert counts[answers].sum() == 0
        assert stats.chisquare(counts[free].numpy()).pvalue > 1e-3


def test_negatives_depend_on_the_querys_index_and_not_on_its_batch():
    def draw(index, row, entity, **kwargs):
        settings = {"num_entities": 50, "num_negatives": 8, "seed": 3, "epoch": 2, **kwargs}
        return sample_negatives(torch.tensor(index), torch.tensor(row), torch.tensor(entity), **settings)[0]

    together = draw([4, 11], [0, 1, 1], [3, 7, 30])
    assert torch.equal(together[1:], draw([11], [0, 0], [7, 30]))
    assert torch.equal(together[:, :5], draw([4, 11], [0, 1, 1], [3, 7, 30], num_negatives=5))
    assert not torch.equal(together, draw([4, 11], [0, 1, 1], [3, 7, 30], epoch=3))


def test_a_query_that_everything_answers_has_no_negatives():
    drawn, possible = sample_negatives(
        torch.tensor([0]),
        torch.zeros(3, dtype=torch.int64),
        torch.arange(3),
        num_entities=3,
        num_negatives=4,
        seed=0,
        epoch=0,
    )
    assert possible.tolist() == [False] and drawn.min() >= 0 and drawn.max() < 3


def test_a_query_that_all_but_one_entity_answers_has_this_one():
    drawn, possible = sample_negatives(
        torch.tensor([0]),
        torch.tensor([0, 0]),
        torch.tensor([0, 2]),
        num_entities=3,
        num_negatives=2,
        seed=0,
        epoch=0,
    )
    assert possible.tolist() == [True] and drawn.tolist() == [[1, 1]]


TRIPLES = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 1, 1], [2, 0, 3], [1, 0, 2]])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_facts_of_the_batch_are_hidden_in_both_directions(dtype):
    removed = torch.tensor([0], dtype=dtype)
    for mode, hidden in (("exact", {0}), ("one_hop", {0, 1, 2})):
        mask = FactRemover(TRIPLES, 4, mode).edge_mask(removed)
        expected = torch.tensor([i not in hidden for i in range(5)])
        assert torch.equal(mask, torch.cat([expected, expected]))
    assert FactRemover(TRIPLES, 4, "none").edge_mask(removed) is None


def test_a_repeated_fact_is_hidden_wherever_it_stands():
    triples = torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1], [1, 0, 0]])
    mask = FactRemover(triples, 2).edge_mask(torch.tensor([2]))
    assert mask.tolist() == [False, True, False, True] * 2, "(1, 0, 0) is another fact"


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="remove_facts must be"):
        FactRemover(TRIPLES, 4, "two_hop")


def test_numpy_integers_are_accepted():
    for value in (3, -2, 2**63 - 1):
        number = np.int64(value)
        assert hash_numbers(number, 5) == hash_numbers(value, 5)
        assert torch.equal(hash_integers(number, 5), hash_integers(value, 5))
        every = torch.arange(3)
        assert torch.equal(hash_integers(number, every), hash_integers(value, every))


def test_int32_facts_hide_only_the_edges_between_their_entities():
    """In int32, the keys of the two pairs of entities would overflow to the same number."""
    triples = torch.tensor([[0, 0, 5_000], [2**12, 0, 5_000]])
    for dtype in (torch.int64, torch.int32):
        mask = FactRemover(triples.to(dtype), 2**20, "one_hop").edge_mask(torch.tensor([0]))
        assert mask.tolist() == [False, True, False, True]


def test_a_mask_in_place_of_positions_is_refused():
    triples = torch.tensor([[0, 0, 2], [1, 0, 2], [0, 1, 2], [1, 1, 2]])
    with pytest.raises(ValueError, match=r"got torch.bool; give removed.nonzero\(\)\[:, 0\]"):
        FactRemover(triples, 3).edge_mask(torch.tensor([False, False, True, False]))
    for place in (-1, 4):
        with pytest.raises(ValueError, match=rf"removed has {place}\.\.{place}: facts are 0\.\.3"):
            FactRemover(triples, 3).edge_mask(torch.tensor([place]))


def test_entities_beyond_the_last_are_refused():
    """Their keys would equal those of other facts, which would be hidden too."""
    for entity in (3, 5):
        with pytest.raises(ValueError, match=rf"entities must be in 0\.\.2, got 0\.\.{entity}"):
            FactRemover(torch.tensor([[0, 0, entity], [1, 0, 2], [0, 0, entity]]), 3)
