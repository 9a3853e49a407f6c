"""MRR, Hits@K, AUROC and AP of links, compared with OGB's evaluator, scikit-learn and cases by hand."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from graphzoo.errors import UsageError
from graphzoo.metrics import LinkMetric, link_figures, link_ranks
from graphzoo.metrics.links import check_name


def scores(*shape: int, seed: int = 0) -> torch.Tensor:
    # 40 levels, so that many scores are tied
    draw = torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(seed))
    return draw.double() / 7


@pytest.fixture(scope="module")
def evaluator() -> object:
    return pytest.importorskip("ogb.linkproppred").Evaluator


@pytest.mark.parametrize("k", [20, 50, 100])
def test_hits_against_a_pool_are_those_of_ogb(evaluator: type, k: int) -> None:
    positive, pool = scores(300) + 1, scores(900, seed=1)
    judge = evaluator(name="ogbl-ddi")
    judge.K = k
    expected = judge.eval({"y_pred_pos": positive, "y_pred_neg": pool})[f"hits@{k}"]
    assert 0 < expected < 1
    assert link_figures(positive, pool)[f"hits@{k}"].item() == pytest.approx(expected, abs=1e-9)


def test_mrr_against_own_negatives_is_that_of_ogb(evaluator: type) -> None:
    positive, own = scores(200), scores(200, 50, seed=1)
    found = evaluator(name="ogbl-citation2").eval({"y_pred_pos": positive, "y_pred_neg": own})
    figures = link_figures(positive, own)
    assert figures["mrr"].item() == pytest.approx(found["mrr_list"].double().mean().item(), abs=1e-6)
    assert not {"auroc", "ap"} & figures.keys()
    for k in (1, 3, 10):
        expected = found[f"hits@{k}_list"].double().mean().item()
        assert figures[f"hits@{k}"].item() == pytest.approx(expected, abs=1e-9)


def test_areas_are_those_of_scikit_learn() -> None:
    positive, pool = 40 * scores(200) + 100, 40 * scores(300, seed=1)
    label = [1] * 200 + [0] * 300
    both = torch.cat([positive, pool]).numpy()
    figures = link_figures(positive, pool)
    assert figures["auroc"].item() == pytest.approx(roc_auc_score(label, both), abs=1e-9)
    assert figures["ap"].item() == pytest.approx(average_precision_score(label, both), abs=1e-6)


def test_ties_share_the_mean_rank() -> None:
    optimistic, pessimistic = link_ranks(torch.tensor([0.5, 0.0]), torch.tensor([0.9, 0.5, 0.5, 0.1]))
    assert optimistic.tolist() == [2, 5] and pessimistic.tolist() == [4, 5]
    assert link_figures(torch.zeros(3), torch.zeros(9))["mrr"].item() == pytest.approx(1 / 5.5)


def test_a_constant_scorer_has_no_hits_against_a_pool() -> None:
    assert link_figures(torch.zeros(3), torch.zeros(200))["hits@100"] == 0


@pytest.mark.parametrize("own", [False, True])
def test_results_do_not_depend_on_batches_or_their_order(own: bool) -> None:
    positive, negative = scores(20), scores(20, 7, seed=1) if own else scores(45, seed=1)
    flat = torch.cat([positive, negative.reshape(-1)])
    expected = link_figures(positive, negative)
    for seed in range(3):
        metric = LinkMetric(20, 7 if own else 45, has_own_negatives=own)
        order = torch.randperm(flat.numel(), generator=torch.Generator().manual_seed(seed))
        for part in order.split(11):
            metric.update(flat[part], part)
        assert metric.compute() == expected


def test_copies_of_a_pair_are_averaged_in_any_order() -> None:
    flat = torch.tensor([0.3, 0.1, 0.2, 0.6], dtype=torch.float64)
    metric = LinkMetric(2, 2, has_own_negatives=False)
    metric.update(flat + 0.1, torch.arange(4))
    metric.update((flat - 0.1).flip(0), torch.arange(4).flip(0))
    positive, negative = metric.scores()
    assert torch.allclose(positive, flat[:2]) and torch.allclose(negative, flat[2:])
    partial = LinkMetric(2, 2, has_own_negatives=False)
    partial.update(torch.tensor([1.0, 3.0, 0.0]), torch.tensor([0, 0, 2]))
    assert str(torch.cat(partial.scores()).tolist()) == "[2.0, nan, 0.0, nan]"


def test_pairs_that_were_not_scored_are_left_out() -> None:
    metric = LinkMetric(3, 2, has_own_negatives=True)
    # index 3 is the first negative of positive 0
    metric.update(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0, 1, 3]))
    assert metric.compute()["mrr"].item() == pytest.approx(1 / 2), "positive 1 has no scored negative"
    assert not metric.is_complete()
    for own in (False, True):
        without = LinkMetric(3, 2, has_own_negatives=own)
        without.update(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))
        assert without.compute() == {}


def test_a_metric_with_all_pairs_is_complete() -> None:
    metric = LinkMetric(2, 2, has_own_negatives=True)
    metric.update(torch.arange(6.0), torch.arange(6))
    assert metric.is_complete()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_without_a_rank_are_refused(bad: float) -> None:
    metric = LinkMetric(2, 2, has_own_negatives=False)
    with pytest.raises(ValueError, match="1 of 2 scores are NaN or infinite .*, the first that of pair 3"):
        metric.update(torch.tensor([1.0, bad]), torch.tensor([2, 3]))


@pytest.mark.parametrize("own", [True, False])
def test_an_empty_split_has_no_figures(own: bool) -> None:
    with pytest.raises(ValueError, match="no positive pair"):
        LinkMetric(0, 3, has_own_negatives=own).compute()


@pytest.mark.parametrize("negative", [torch.empty(2, 0), torch.empty(0)])
def test_positives_without_negatives_are_refused(negative: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="positive 0 cannot be ranked"):
        link_figures(torch.tensor([0.5, 0.1]), negative)


def test_a_wrong_number_of_rows_of_negatives_is_refused():
    with pytest.raises(ValueError, match=r"4 positives need negatives \[4, K\], .*got \[3, 9\]"):
        link_figures(torch.randn(4), torch.randn(3, 9))


@pytest.mark.parametrize("number", [5, -1])
def test_an_index_outside_the_split_is_refused_at_once(number):
    metric = LinkMetric(2, 3, has_own_negatives=False)
    with pytest.raises(ValueError, match=rf"index must lie in 0..4, got {number}"):
        metric.update(torch.randn(2), torch.tensor([0, number]))


def test_columns_of_scores_are_refused():
    """A linear layer with one output gives [P, 1], which broadcasting would compare with all positives."""
    positive, negative = torch.tensor([0.9, 0.1]), torch.tensor([[0.5, 0.2], [0.0, 0.05]])
    assert link_figures(positive, negative)["mrr"] == 1
    for wrong in (
        (positive[:, None], negative),
        (positive, negative[:, :, None]),
        (positive[:, None], negative[0]),
    ):
        with pytest.raises(ValueError, match=r"positive must be \[P\] and negative .* give scores.squeeze"):
            link_figures(*wrong)


@pytest.mark.parametrize("name", ["hits@010", "hits@0", "hits@", "hits@\u0661\u0660", "hits@10 ", "mrr@3"])
def test_names_that_are_never_logged_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="metric must be"):
        check_name(name)
    check_name("hits@10")
