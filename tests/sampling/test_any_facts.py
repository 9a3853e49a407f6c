"""Hidden facts and negatives in random graphs, with repeated facts, loops or no facts."""

import hypothesis.strategies as st
import torch
from hypothesis import given, settings

from graphzoo.sampling import FactRemover, sample_negatives

ENTITIES = 7
FACTS = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, 2), st.integers(0, ENTITIES - 1)), max_size=12
)


@settings(max_examples=80)
@given(FACTS, st.sampled_from(["exact", "one_hop"]), st.data())
def test_hidden_facts_are_those_of_the_definition(facts, mode, data):
    triples = torch.tensor(facts, dtype=torch.int64).reshape(-1, 3)
    n = len(facts)
    removed = data.draw(st.lists(st.integers(0, max(0, n - 1)), max_size=n))
    mask = FactRemover(triples, ENTITIES, mode).edge_mask(torch.tensor(removed, dtype=torch.int64))
    pairs = {frozenset((facts[i][0], facts[i][2])) for i in removed}
    same = {facts[i] for i in removed}  # all copies of a repeated fact are hidden
    hidden = [
        facts[i] in same if mode == "exact" else frozenset((facts[i][0], facts[i][2])) in pairs
        for i in range(n)
    ]
    assert mask is not None and (~mask).tolist() == hidden * 2, "a fact and its inverse are hidden together"


@settings(max_examples=80)
@given(
    st.lists(st.sets(st.integers(0, ENTITIES - 1)), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(0, 2**40),
    st.integers(0, 1000),
)
def test_negatives_answer_no_query_and_depend_on_the_query_alone(answers, num_negatives, seed, epoch):
    row = torch.tensor([i for i, known in enumerate(answers) for _ in known], dtype=torch.int64)
    entity = torch.tensor([e for known in answers for e in sorted(known)], dtype=torch.int64)
    index = torch.arange(len(answers)) * 1000 + 17
    settings_ = {"num_entities": ENTITIES, "num_negatives": num_negatives, "seed": seed, "epoch": epoch}
    found, possible = sample_negatives(index, row, entity, **settings_)
    assert found.shape == (len(answers), num_negatives)
    for i, known in enumerate(answers):
        assert bool(possible[i]) == (len(known) < ENTITIES)
        if possible[i]:
            assert (
                not known & set(found[i].tolist())
                and 0 <= int(found[i].min()) <= int(found[i].max()) < ENTITIES
            )
        mine = row == i
        alone, _ = sample_negatives(index[i : i + 1], row[mine] * 0, entity[mine], **settings_)
        assert torch.equal(alone[0], found[i])
