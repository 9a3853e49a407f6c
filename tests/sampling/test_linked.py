"""What is hidden from training queries, so that they see as much as validation does."""

import os
from collections import Counter
from functools import partial

import pytest
import torch
from helpers.kg_tasks import make_task, make_trainer

from graphzoo.datamodules import KGDataModule, MixtureDataModule
from graphzoo.encoders import KnowFormerAny
from graphzoo.sampling.hidden_facts import Linked
from graphzoo.tasks import KGCompletion


def pair(triple):
    return frozenset(triple[::2])


def draw(count, num_entities, seed):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(num_entities, (2, count), generator=generator)
    return torch.stack([ends[0], torch.randint(3, (count,), generator=generator), ends[1]], dim=1)


@pytest.mark.parametrize("num_entities", [3, 12, 2**31 - 1])
def test_the_shares_are_those_of_a_count_by_hand(num_entities):
    """Facts repeat, go in both directions, and join entities with themselves."""
    for seed in range(5):
        facts, questions, known = (draw(40, num_entities, 3 * seed + number) for number in range(3))
        facts = torch.cat([facts, facts[:5], facts[5:8].flip(1)])
        distinct = set(map(tuple, facts.tolist()))
        times = Counter(map(pair, distinct))
        linked = Linked.among(facts, questions, known)
        assert linked.facts == pytest.approx(sum(times[pair(fact)] > 1 for fact in distinct) / len(distinct))
        there = set(map(pair, known.tolist()))
        assert linked.questions == pytest.approx(sum(pair(fact) in there for fact in questions.tolist()) / 40)
        assert linked.num_questions == 40


@pytest.mark.parametrize(
    "facts, questions, num_questions, removal",
    [
        (0.38, 0.0, 17_535, "one_hop"),  # FB15k-237
        (0.25, 0.31, 543, "exact"),  # NELL-995
        (0.063, 0.062, 10_310, "exact"),  # CoDEx-M
        (0.58, 0.0, 24, "one_hop"),  # Countries S1
        (0.38, 0.0, 26, "exact"),  # too few to tell: ten of them would be linked at least
        (0.4, 0.1, 25, "one_hop"),
        (0.4, 0.11, 100, "exact"),
        (0.0, 0.0, 100, "exact"),
        (0.5, 0.0, 0, "exact"),
    ],
)
def test_one_hop_is_for_questions_that_facts_rarely_link(facts, questions, num_questions, removal):
    assert Linked(facts, questions, num_questions).removal == removal


@pytest.mark.parametrize(
    "name, facts, questions, removal",
    [
        ("fb15k237", 0.378, 0.0, "one_hop"),
        ("countries-s1", 0.577, 0.0, "one_hop"),
        ("wn18rr", 0.345, 0.355, "exact"),
        ("nell995-v1", 0.248, 0.411, "exact"),
        ("umls", 0.614, 0.620, "exact"),
    ],
)
def test_the_mode_that_fits_public_graphs(name, facts, questions, removal):
    """The shares were counted by a loop over the distinct lines of the files."""
    if name != "umls" and not os.environ.get("GRAPHZOO_DATA"):
        pytest.skip("GRAPHZOO_DATA is not set: only UMLS comes with the package")
    data = KGDataModule(name)
    data.setup()
    data.hides = "auto"
    assert data.hidden() == removal
    linked = Linked.among(*(data.triples(split) for split in ("train", "valid", "train")))
    assert (linked.facts, linked.questions) == pytest.approx((facts, questions), abs=1e-3)


def test_no_triples_at_all_are_no_error():
    none = torch.zeros(0, 3, dtype=torch.int64)
    assert Linked.among(none, none, none) == Linked(0.0, 0.0, 0)


def parallel(linked, shift=0):
    """Facts in pairs, (a, r, b) and (a, s, b), and validation triples whose entities are linked or not."""

    def pairs(step):
        return [(f"a{i}", f"b{(i + step + shift) % 30}") for i in range(30)]

    facts = [(a, relation, b) for step in (0, 3) for a, b in pairs(step) for relation in "rs"]
    valid = [(a, "t", b) for a, b in pairs(0 if linked else 5)]
    return {"triples": [*facts, ("a0", "t", "b7"), ("b3", "t", "a8")], "valid": valid, "test": valid[:2]}


@pytest.mark.parametrize(
    "settings", [{}, {"neighbourhood": 20, "eval_neighbourhood": 20}], ids=["whole", "near"]
)
@pytest.mark.parametrize("linked, same", [(False, "one_hop"), (True, "exact")])
def test_auto_trains_like_the_mode_that_fits(tmp_path, settings, linked, same):
    said = {}

    def weights(remove_facts):
        task = make_task(remove_facts=remove_facts)
        data = KGDataModule.from_triples(**parallel(linked), batch_size=16, **settings)
        make_trainer(tmp_path, max_epochs=1).fit(task, data)
        said[remove_facts] = data.asks_near and "(remove_facts one_hop)" in data.describe_queries()
        return torch.cat([value.flatten() for value in task.state_dict().values()])

    other = {"one_hop": "exact", "exact": "one_hop"}[same]
    wanted, unwanted = weights(same), weights(other)
    assert torch.equal(weights("auto"), wanted) and not torch.equal(wanted, unwanted)
    assert said == {"exact": False, "one_hop": False, "auto": same == "one_hop"}, (
        "the summary says what was chosen"
    )


def write_files(folder, linked, shift=0):
    """A folder of `parallel`."""
    folder.mkdir()
    for split, triples in zip(("train", "valid", "test"), parallel(linked, shift).values(), strict=True):
        (folder / f"{split}.tsv").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    return str(folder)


@pytest.mark.parametrize("linked, removal", [(False, "one_hop"), (True, "exact")])
def test_validation_on_a_second_graph_is_linked_by_its_facts(tmp_path, linked, removal):
    """The first graph's facts join other entities."""
    paths = [write_files(tmp_path / "first", not linked), write_files(tmp_path / "second", linked, shift=1)]
    data = KGDataModule(path=paths, validate_on="inference")
    data.setup()
    data.hides = "auto"
    assert data.hidden() == removal


def test_each_graph_of_a_mixture_has_its_own_mode(tmp_path):
    folders = [write_files(tmp_path / f"linked-{linked}", linked) for linked in (False, True)]
    data = MixtureDataModule(names=folders, batch_size=16, neighbourhood=20, epoch_queries=32)
    task = KGCompletion(
        partial(KnowFormerAny, hidden_channels=8, num_layers=1, num_heads=2), remove_facts="auto"
    )
    make_trainer(tmp_path, max_epochs=1).fit(task, data)
    assert [data.hidden(source) for source in (0, 1)] == ["one_hop", "exact"]
    assert [part.training_batches().hides for part in data.parts] == ["one_hop", "exact"]
