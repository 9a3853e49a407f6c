"""`Trainer.predict` gives the scores from which a test computes its metrics."""

import pytest
import torch
from helpers.resume_cases import CASES
from helpers.trainers import QUIET
from lightning.pytorch import Trainer, seed_everything

from graphzoo.metrics import LinkMetric, RankingMetric, rank_targets


def predicted(name, folder):
    """Train a case for an epoch; return task, data, batches of the test, their scores, and its metrics."""
    seed_everything(0, verbose=False)
    case = CASES[name]
    task, data = case.task(), case.data(folder, 0)
    trainer = Trainer(**QUIET, max_epochs=1, default_root_dir=folder)
    trainer.fit(task, data)
    scores = trainer.predict(task, data)
    figures = trainer.test(task, data, verbose=False)[0]
    batches = list(data.predict_dataloader())
    assert len(scores) == len(batches)
    return task, data, batches, scores, figures


@pytest.mark.parametrize("name", ["kg-completion, KnowFormer", "kg-completion, KnowFormer, neighbourhoods"])
def test_predicted_scores_of_entities_give_the_test_mrr(name, tmp_path):
    _, data, batches, scores, figures = predicted(name, tmp_path)
    metric = RankingMetric()
    for batch, logits in zip(batches, scores, strict=True):
        assert logits.shape == (batch.head.numel(), data.graph("test").num_nodes)
        optimistic, pessimistic = rank_targets(logits, batch)
        metric.update(optimistic, pessimistic, batch.target_index)
    assert float(metric.compute()["mrr"]) == pytest.approx(figures["test/mrr"], rel=1e-6)


@pytest.mark.parametrize("encoder", ["PENCIL", "GALiT", "KnowFormer"])
def test_predicted_scores_of_pairs_give_the_test_mrr(encoder, tmp_path):
    task, data, batches, scores, figures = predicted(f"link-prediction, {encoder}", tmp_path)
    judged = data.judged("test")
    metric = LinkMetric(
        len(judged.positive), judged.negative.shape[-2], has_own_negatives=judged.has_own_negatives
    )
    for batch, logits in zip(batches, scores, strict=True):
        assert logits.shape == (len(batch),)
        metric.update(logits.double(), batch.index)
    assert float(metric.compute()["mrr"]) == pytest.approx(figures["test/mrr"], rel=1e-6)
    trainer = Trainer(**QUIET, default_root_dir=tmp_path)
    assert torch.equal(torch.cat(trainer.predict(task, data)), torch.cat(scores))
    for weight in task.encoder.parameters():
        weight.data = torch.zeros_like(weight)
    again = trainer.predict(task, data)
    assert not torch.equal(torch.cat(again), torch.cat(scores)), "no states of other weights are kept"


def test_predicted_scores_of_nodes_give_the_test_accuracy(tmp_path):
    name = "node-classification, NodeFormer, whole graph"
    task, data, (batch,), (logits,), figures = predicted(name, tmp_path)
    right = logits.argmax(1) == batch.y[batch.target]
    assert len(right) == data.num_tested
    assert float(right.double().mean()) == pytest.approx(figures["test/acc"])
    with torch.no_grad():
        for weight in task.parameters():
            weight.zero_()
    again = Trainer(**QUIET, default_root_dir=tmp_path).predict(task, data)[0]
    assert not again.any(), "no states of other weights are kept"
