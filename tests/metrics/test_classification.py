"""Accuracy and ROC-AUC, compared with scikit-learn and OGB's evaluator."""

import copy
import subprocess

import numpy as np
import pytest
import torch
from helpers.warm_python import python
from sklearn.metrics import accuracy_score, roc_auc_score

from graphzoo.metrics import Accuracy, RocAuc, roc_auc


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_accuracy_agrees_with_sklearn_in_any_batches():
    logits, target = draw(0, 101, 5), torch.arange(101) % 5
    metric = Accuracy()
    for part in (slice(0, 7), slice(7, 8), slice(8, 101)):
        metric.update(logits[part], target[part])
    expected = accuracy_score(target, logits.argmax(1))
    assert metric.compute().dtype == torch.float64
    assert float(metric.compute()) == expected != 1.0


def test_accuracy_of_yes_no_labels_counts_known_ones():
    logits = torch.tensor([[1.0, -1.0], [2.0, 3.0]])
    target = torch.tensor([[1.0, 1.0], [0.0, float("nan")]])
    metric = Accuracy()
    metric.update(logits, target)
    assert float(metric.compute()) == 1 / 3


def test_a_logit_of_zero_says_no():
    metric = Accuracy()
    metric.update(torch.zeros(3, 1), torch.tensor([[0.0], [0.0], [1.0]]))
    assert metric.compute() == 2 / 3


@pytest.mark.parametrize("levels", [3, 1000], ids=["tied", "distinct"])
def test_auc_agrees_with_sklearn(levels):
    scores = (draw(1, 500) * levels).round() / levels
    target = (draw(2, 500) + scores > 0.3).float()
    assert float(roc_auc(scores, target)) == pytest.approx(roc_auc_score(target, scores), abs=1e-15)


def test_two_classes_are_ranked_by_the_probability_of_class_1():
    logits, target = draw(3, 300, 2), (draw(4, 300) > 0).long()
    metric = RocAuc()
    metric.update(logits[:100], target[:100])
    metric.update(logits[100:], target[100:])
    expected = roc_auc_score(target, logits.double().softmax(1)[:, 1])
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)


def test_saturated_probabilities_still_rank():
    """In float32, the softmax of confident logits is 1.0 for many nodes, which would be tied."""
    logits = torch.tensor([[0.0, 40.0], [0.0, 50.0], [0.0, 60.0]])
    metric = RocAuc()
    metric.update(logits, torch.tensor([0, 1, 1]))
    assert float(metric.compute()) == 1.0


def test_yes_no_labels_agree_with_ogb():
    """OGB's evaluator leaves out labels of which all nodes have the same value, and so does `RocAuc`."""
    from ogb.nodeproppred import Evaluator

    evaluator = Evaluator("ogbn-proteins")
    logits, target = draw(5, 200, 112), (draw(6, 200, 112) > 0.5).float()
    target[:, 3] = 1.0
    target[:, 7] = 0.0
    expected = evaluator.eval({"y_true": target.numpy(), "y_pred": logits.numpy()})["rocauc"]
    metric = RocAuc()
    metric.update(logits, target)
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)
    assert metric.per_label().isnan().nonzero().flatten().tolist() == [3, 7]


def test_unknown_labels_are_left_out():
    scores, target = draw(7, 60), (draw(8, 60) > 0).float()
    target[::4] = float("nan")
    known = ~target.isnan()
    expected = roc_auc_score(target[known], scores[known])
    assert float(roc_auc(scores, target)) == pytest.approx(expected, abs=1e-15)


def test_nothing_to_average_is_nan_and_three_classes_are_refused():
    metric = RocAuc()
    metric.update(draw(9, 4, 2), torch.zeros(4, dtype=torch.int64))
    assert np.isnan(float(metric.compute()))
    with pytest.raises(ValueError, match="two classes, got 3; use accuracy"):
        RocAuc().update(draw(9, 4, 3), torch.zeros(4, dtype=torch.int64))


def test_gathered_states_are_one_tensor():
    """When processes gather, torchmetrics replaces the list of batches by one tensor."""
    metric = RocAuc()
    logits, target = torch.randn(20, 3), torch.randint(2, (20, 3)).float()
    metric.update(logits, target)
    expected = metric.compute()
    metric.scores, metric.targets = torch.cat(metric.scores), torch.cat(metric.targets)
    assert torch.equal(metric.per_label().nanmean(), expected)


def test_nothing_seen_is_nan_and_float64_is_not_rounded():
    nothing = RocAuc().per_label().nanmean()
    assert nothing.isnan() and nothing.dtype == torch.float64
    metric = RocAuc()
    metric.update(torch.tensor([[1.0], [1.0 + 1e-12]], dtype=torch.float64), torch.tensor([[0.0], [1.0]]))
    assert metric.compute() == 1


def test_nodes_of_unknown_class_are_left_out():
    logits, target = (
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 3.0]]),
        torch.tensor([0, 1, -1, -1]),
    )
    accuracy, auc = Accuracy(), RocAuc()
    accuracy.update(logits, target)
    auc.update(logits, target)
    assert accuracy.compute() == 1 and accuracy.total == 2
    assert auc.compute() == 1


@pytest.mark.parametrize("metric", [Accuracy, RocAuc])
def test_a_column_of_classes_is_refused(metric):
    """OGB keeps classes as [N, 1]; compared with every column of logits, the accuracy would exceed 1."""
    with pytest.raises(ValueError, match=r"logits \[5, 3\] .*target \[5, 1\].*\nGive .*target.squeeze\(1\)"):
        metric().update(torch.randn(5, 3), torch.tensor([[0], [1], [2], [0], [1]]))
    with pytest.raises(ValueError, match=r"logits \[5, 3\] .*target \[4\]"):
        metric().update(torch.randn(5, 3), torch.tensor([0, 1, 2, 0]))


def test_logits_of_a_training_step_are_detached():
    layer = torch.nn.Linear(4, 3)
    for target in (torch.randint(2, (20, 3)).float(), torch.randint(2, (20,))):
        metric, logits = RocAuc(), layer(draw(10, 20, 4))
        metric.update(logits if target.dim() == 2 else logits[:, :2], target)
        assert not any(scores.requires_grad for scores in metric.scores)
        assert torch.equal(copy.deepcopy(metric).compute(), metric.compute())


def test_one_logit_for_two_classes_is_refused():
    """`argmax` would predict class 0 for every node."""
    with pytest.raises(
        ValueError, match=r"\[4, 1\] have one class, but target has 2\n.*give target\[:, None\]"
    ):
        Accuracy().update(torch.randn(4, 1), torch.tensor([0, 1, 0, 1]))
    single = Accuracy()
    single.update(torch.randn(2, 1), torch.tensor([0, -1]))
    assert single.compute() == 1


_PROCESS = """
import sys, torch
from graphzoo.metrics import RocAuc
rank, rendezvous = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
for classes in (torch.tensor([[1, 0], [1, 1], [0, 0]]), torch.tensor([1, 1, 0])):
    metric = RocAuc()
    if rank:
        metric.update(torch.tensor([[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]]), classes)
    print(metric.compute().item())
print(RocAuc().compute().item())
torch.distributed.destroy_process_group()
"""


def test_processes_without_a_batch_gather_too(tmp_path):
    processes = [
        subprocess.Popen(
            [python(), "-c", _PROCESS, str(rank), str(tmp_path / "rendezvous")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["0.0\n0.75\nnan\n"] * 2


def test_auc_refuses_a_third_class():
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.2]])
    with pytest.raises(ValueError, match="target has class 2, but the classes must be 0 and 1"):
        RocAuc().update(logits, torch.tensor([1, 2, 1]))


@pytest.mark.parametrize("metric", [RocAuc, Accuracy])
def test_integer_yes_no_labels_are_unknown_at_minus_one(metric):
    logits, target = torch.tensor([[0.9], [0.8], [-0.1]]), torch.tensor([[-1], [1], [0]])
    whole, floats = metric(), metric()
    whole.update(logits, target)
    floats.update(logits, torch.tensor([[float("nan")], [1.0], [0.0]]))
    assert whole.compute() == floats.compute() == 1
    with pytest.raises(ValueError, match="yes-no labels must be 0, 1, or -1 for unknown, got 2"):
        metric().update(logits, target + 1)


def test_overwriting_a_buffer_does_not_change_past_batches():
    scores, target = torch.tensor([[0.1], [0.9]]), torch.tensor([[0.0], [1.0]])
    metric = RocAuc()
    metric.update(scores, target)
    scores.copy_(torch.tensor([[0.9], [0.1]]))
    target.copy_(torch.tensor([[1.0], [0.0]]))
    metric.update(scores, target)
    assert float(metric.compute()) == 1.0
