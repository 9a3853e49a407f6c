"""Ranks of scores with many ties, compared with PyKEEN and OGB."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from graphzoo.metrics import RankingMetric, filtered_ranks, rank_targets

pykeen_ranks = pytest.importorskip("pykeen.evaluation.ranks")


problems = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "num_queries": st.integers(2, 9),
        "num_entities": st.integers(2, 30),
        "levels": st.integers(1, 40),
    }
)


@given(problem=problems)
@settings(max_examples=100)
def test_pykeen_ranks(problem, random_batch, filter_masks):
    scores, batch = random_batch(**problem)
    mask = filter_masks(batch, scores.shape[1])
    per_target = scores[batch.target_row]
    own = per_target.gather(1, batch.target[:, None])
    oracle = pykeen_ranks.Ranks.from_scores(own, per_target.masked_fill(mask, float("nan")))
    optimistic, pessimistic = rank_targets(scores, batch)
    assert torch.equal(optimistic, oracle.optimistic)
    assert torch.equal(pessimistic, oracle.pessimistic)
    for ties in ("optimistic", "realistic", "pessimistic"):
        found = filtered_ranks(per_target, batch.target, mask, ties=ties)
        assert torch.equal(found, getattr(oracle, ties).float())


@given(problem=problems)
@settings(max_examples=50)
def test_ogb_wikikg2(problem, random_batch, filter_masks):
    linkproppred = pytest.importorskip("ogb.linkproppred")
    scores, batch = random_batch(**problem)
    mask = filter_masks(batch, scores.shape[1])
    mask[torch.arange(batch.target.numel()), batch.target] = True
    # OGB needs the same number of negatives for every positive, so filtered ones get the lowest score.
    negatives = scores[batch.target_row].masked_fill(mask, -1.0)
    positives = scores[batch.target_row, batch.target]
    if not positives.numel():
        return
    lists = linkproppred.Evaluator("ogbl-wikikg2").eval({"y_pred_pos": positives, "y_pred_neg": negatives})
    metric = RankingMetric()
    metric.update(*rank_targets(scores, batch), batch.target_index)
    found = metric.compute()
    for name in ("mrr", "hits@1", "hits@3", "hits@10"):
        assert found[name].item() == pytest.approx(lists[f"{name}_list"].double().mean().item(), abs=1e-6)


def test_pykeen_evaluator_on_a_random_graph(query_batch):
    mocks = pytest.importorskip("pykeen.models.mocks")
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.triples import CoreTriplesFactory

    num_entities, num_relations = 17, 3
    generator = torch.Generator().manual_seed(5)
    cell = torch.randperm(num_entities**2 * num_relations, generator=generator)[:160]
    triples = torch.stack(
        [
            cell // (num_entities * num_relations),
            cell // num_entities % num_relations,
            cell % num_entities,
        ],
        dim=1,
    )
    train, test = triples[:120], triples[120:]
    # Two tables, for (h, r, ?) and (?, r, t), because a query encoder scores both directions differently.
    tail_scores = torch.randint(5, (num_entities, num_relations, num_entities), generator=generator).float()
    head_scores = torch.randint(5, (num_entities, num_relations, num_entities), generator=generator).float()

    class Tables(mocks.FixedModel):
        def score_t(self, hr_batch, **kwargs):
            return tail_scores[hr_batch[:, 0], hr_batch[:, 1]].clone()

        def score_h(self, rt_batch, **kwargs):
            return head_scores[rt_batch[:, 1], rt_batch[:, 0]].clone()

    factory = CoreTriplesFactory(train, num_entities=num_entities, num_relations=num_relations)
    oracle = RankBasedEvaluator().evaluate(
        Tables(triples_factory=factory),
        test,
        additional_filter_triples=train,
        batch_size=8,
        use_tqdm=False,
    )

    directed = torch.cat([test, torch.stack([test[:, 2], test[:, 1] + num_relations, test[:, 0]], dim=1)])
    queries = sorted({(h, r) for h, r, _ in directed.tolist()})
    answers = [
        (queries.index((h, r)), t)
        for side in (
            triples,
            torch.stack([triples[:, 2], triples[:, 1] + num_relations, triples[:, 0]], dim=1),
        )
        for h, r, t in side.tolist()
        if (h, r) in queries
    ]
    batch = query_batch(queries, [(queries.index((h, r)), t) for h, r, t in directed.tolist()], answers)
    scores = torch.stack(
        [
            tail_scores[h, r] if r < num_relations else head_scores[h, r - num_relations]
            for h, r in zip(batch.head.tolist(), batch.relation.tolist(), strict=True)
        ]
    )
    optimistic, pessimistic = rank_targets(scores, batch)
    assert (pessimistic > optimistic).float().mean() > 0.5
    names = {"mr": "arithmetic_mean_rank", "mrr": "inverse_harmonic_mean_rank"}
    for ties in ("optimistic", "realistic", "pessimistic"):
        metric = RankingMetric(ties=ties)
        metric.update(optimistic, pessimistic, batch.target_index)
        for name, value in metric.compute().items():
            expected = oracle.get_metric(f"both.{ties}.{names.get(name, name.replace('@', '_at_'))}")
            assert value.item() == pytest.approx(expected, abs=1e-12 if ties == "optimistic" else 1e-6)
