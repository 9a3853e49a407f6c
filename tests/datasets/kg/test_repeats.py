"""The warnings about relations that repeat facts of others, or their own."""

import warnings

import pytest
import torch

from graphzoo.datasets import GraphzooDataWarning, from_files
from graphzoo.datasets.kg import repeats
from graphzoo.datasets.kg.graph import KnowledgeGraph
from graphzoo.datasets.kg.repeats import repeated_relations


def graph_of(train, num_entities, relations):
    empty = torch.empty(0, 3, dtype=torch.int64)
    names = tuple(f"e{number}" for number in range(num_entities))
    return KnowledgeGraph("own", names, relations, torch.tensor(sorted(train)), empty, empty)


@pytest.mark.fault(
    "own triples have a relation and its inverse",
    "a warning that test facts could be read off training facts",
)
@pytest.mark.parametrize("kept", [1.0, 0.85, 0.75])
def test_a_relation_and_its_inverse(kept):
    generator = torch.Generator().manual_seed(0)
    pairs = {tuple(pair) for pair in torch.randint(30, (200, 2), generator=generator).tolist()}
    facts = {(h, 0, t) for h, t in pairs} | {(h, 2, t) for h, t in sorted(pairs)[:40]}
    facts |= {(t, 1, h) for h, t in sorted(pairs)[: round(kept * len(pairs))]}
    train = graph_of(facts, 30, ("of", "has", "near"))
    turned = {(t, h) for h, r, t in facts if r == 1}
    share = len(pairs & turned) / len(pairs)
    told = repeated_relations(train)
    assert len(told) == (share >= 0.8)
    if told:
        assert f"relations 'of' and 'has' are inverse to each other in {100 * share:.0f} %" in told[0]
        assert "such pairs" not in told[0]


@pytest.mark.parametrize(("turned", "count", "told"), [(10, 10, 1), (9, 9, 0), (12, 15, 1), (12, 16, 0)])
def test_ten_inverse_facts_and_four_fifths_are_enough(turned, count, told):
    facts = {(i, 0, i + 1) for i in range(count)} | {(i + 1, 1, i) for i in range(turned)}
    assert len(repeated_relations(graph_of(facts, count + 1, ("of", "has")))) == told


def test_small_relations_give_no_warning():
    few = (
        {(i, 1, i + 1) for i in range(9)}
        | {(i + 1, 2, i) for i in range(9)}
        | {(i, 3, i + 1) for i in range(9)}
    )
    few |= {(i, 4, i + 1) for i in range(4)} | {(i + 1, 4, i) for i in range(4)}
    loops = {(i, 0, i) for i in range(40)}
    assert repeated_relations(graph_of(few | loops, 41, ("is", "of", "has", "owns", "near"))) == []


@pytest.mark.fault(
    "own triples have a relation in both directions, or one relation under two names",
    "a warning that test facts could be read off training facts",
)
@pytest.mark.parametrize("share", [1.0, 0.85, 0.75])
def test_a_relation_in_both_directions_and_two_names_of_one_relation(share):
    ring = {(i, (i + 1) % 40) for i in range(40)}
    turned = {(t, h) for h, t in sorted(ring)[: round(40 * share)]}
    symmetric = graph_of({(h, 0, t) for h, t in ring | turned}, 40, ("near",))
    both = 2 * len(turned) / len(ring | turned)
    told = repeated_relations(symmetric)
    assert len(told) == (both >= 0.8)
    assert not told or f"relation 'near' holds in both directions in {100 * both:.0f} %" in told[0]
    again = {(h, 1, t) for h, t in sorted(ring)[: round(40 * share)]}
    told = repeated_relations(graph_of({(h, 0, t) for h, t in ring} | again, 40, ("near", "close")))
    assert len(told) == (share >= 0.8)
    said = f"relations 'near' and 'close' hold for the same pairs in {100 * share:.0f} % of their facts: "
    assert not told or (said in told[0] and "keep one of the two" in told[0])


def test_pairs_of_entities_with_many_relations_cost_little():
    many = 40
    star = {(0, r, t) for r in range(many) for t in range(1, 30)}
    train = graph_of(star, 30, tuple(f"r{number:02d}" for number in range(many)))
    pair = (30 * train.train[:, 0] + train.train[:, 2]).numpy()
    assert repeats._matches(pair, pair)[0].size == repeats._MOST * len(star) < many * len(star)
    (told,) = repeated_relations(train)
    assert "'r00' and 'r01' hold for the same pairs in 100 % of their facts; " in told


@pytest.mark.parametrize("names", [("a1", "a2"), ("z1", "z2")])
def test_the_order_of_names_does_not_matter(names):
    relations = tuple(sorted([*names, *(f"m{number}" for number in range(10))]))
    facts = set()
    for r, relation in enumerate(
        relations
    ):  # all hold for the first 30 pairs, others also for pairs of their own
        facts |= {(i, r, i + 1) for i in range(30)}
        facts |= {(100 + 10 * r, r, i) for i in range(20)} if relation not in names else set()
    told = repeated_relations(graph_of(facts, 220, relations))
    assert (
        len(told) == 1
        and f"relations {names[0]!r} and {names[1]!r} hold for the same pairs in 100 %" in told[0]
    )


def test_own_files_give_the_warning(tmp_path):
    rows = [f"a{i % 20}\tof\tb{i % 7}\nb{i % 7}\thas\ta{i % 20}\n" for i in range(140)]
    (tmp_path / "train.tsv").write_text("".join(rows))
    with pytest.warns(
        GraphzooDataWarning, match="'has' and 'of' are inverse to each other .* keep one of the two"
    ):
        from_files(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(row.partition("\n")[0] + "\n" for row in rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_files(tmp_path)
