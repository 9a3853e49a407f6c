"""Evaluation and prediction that run out of memory continue in halves, with the same scores."""

import logging

import pytest
import torch
from helpers.link_graphs import make_link_graph
from helpers.node_graphs import write_npz
from helpers.trainers import QUIET
from lightning.pytorch import Trainer

from graphzoo.datamodules import LinkDataModule, NodeDataModule
from graphzoo.encoders import PENCIL, GALiT, KnowFormer
from graphzoo.encoders.base import NodeEncoder, QueryEncoder
from graphzoo.errors import OutOfMemoryError
from graphzoo.inference.link_scoring import LinkPlace
from graphzoo.system.memory import Halves, explain_out_of_memory, is_out_of_memory
from graphzoo.tasks import LinkPrediction, NodeClassification

ENCODERS = {
    "PENCIL": lambda spec: PENCIL(
        spec, hidden_channels=16, num_layers=1, num_heads=2, ffn_channels=16, dropout=0.0
    ),
    "GALiT": lambda spec: GALiT(spec, hidden_channels=8, dropout=0.0),
    "KnowFormer": lambda spec: KnowFormer(spec, hidden_channels=8, num_layers=1, num_heads=2),
}


def run_out():
    """Raise the error of torch's allocator."""
    torch.empty(1 << 60, dtype=torch.uint8)


def small_machine(task, most):
    """Let more than `most` pairs or sources at once run out of memory; return the sizes of all calls."""
    sizes = []

    def encode(module, args, kwargs):
        sizes.append(args[1].numel() if isinstance(module, QueryEncoder) else len(args[0]))
        if sizes[-1] > most:
            run_out()

    if isinstance(task.encoder, NodeEncoder):
        task.decoder.register_forward_pre_hook(encode, with_kwargs=True)
    else:
        task.encoder.register_forward_pre_hook(encode, with_kwargs=True)
    return sizes


def links(encoder):
    """A task, its data and a trainer."""
    data = LinkDataModule(depth=1, num_neighbors=12, max_nodes=26, eval_batch_size=16)
    data._load = lambda download: make_link_graph()
    torch.manual_seed(0)
    task = LinkPrediction(ENCODERS[encoder])
    return task, data, Trainer(**QUIET)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault(
    "scoring links runs out of memory", "scoring continues with halved batches and the same scores"
)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_links_are_evaluated_in_halves(encoder, caplog):
    task, data, trainer = links(encoder)
    whole = [trainer.validate(task, data, verbose=False)[0], trainer.test(task, data, verbose=False)[0]]
    sizes = small_machine(task, 5)
    with caplog.at_level(logging.WARNING, logger="graphzoo"):
        parts = [trainer.validate(task, data, verbose=False)[0], trainer.test(task, data, verbose=False)[0]]
    assert "out of memory while scoring: continuing with" in caplog.text
    assert max(sizes) > 5, "it was tried at once"
    assert sum(size > 5 for size in sizes) <= 3, "and then known not to fit"
    assert parts == [pytest.approx(figures, abs=1e-6) for figures in whole]
    assert len(whole[1]) > 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("encoder", ENCODERS)
def test_scores_do_not_depend_on_halves(encoder):
    task, data, trainer = links(encoder)
    trainer.validate(task, data, verbose=False)
    task.eval()
    (batch, *_) = data.val_dataloader()
    whole = task.score_batch(batch, "valid")
    small_machine(task, 1)
    torch.testing.assert_close(task.score_batch(batch, "valid"), whole, atol=1e-6, rtol=1e-6)
    task.forget_states()
    assert task.score_batch(batch.part(0, 0), "valid").shape == (0,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault(
    "a single pair or a single source does not fit into memory", "an error of two lines with the remedy"
)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_single_pair_or_source_that_does_not_fit_is_an_error(encoder):
    task, data, trainer = links(encoder)
    trainer.validate(task, data, verbose=False)
    small_machine(task, 0)
    with pytest.raises(OutOfMemoryError, match="scoring, with one of .* pairs at a time: ") as caught:
        trainer.validate(task, data, verbose=False)
    assert str(caught.value).splitlines()[1].startswith("Take a smaller --model.encoder.hidden_channels, or")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault("predicting links runs out of memory", "the batch is halved; the answers are the same")
@pytest.mark.parametrize("encoder", ENCODERS)
def test_links_are_predicted_in_halves(encoder, caplog):
    task, data, trainer = links(encoder)
    trainer.validate(task, data, verbose=False)
    place = LinkPlace(task.eval(), data.graph, data.transform, data.describe_settings())
    pairs = torch.cartesian_prod(torch.arange(3, 8), torch.arange(20, 27))
    whole = place.score(pairs)
    sizes = small_machine(task, 2)
    with caplog.at_level(logging.WARNING, logger="graphzoo"):
        torch.testing.assert_close(place.score(pairs), whole, atol=1e-6, rtol=1e-6)
    assert "out of memory while scoring" in caplog.text and 1 <= sizes[-1] <= 2
    assert place.score(pairs[:0]).shape == (0,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.fault(
    "a whole graph does not fit into memory, in evaluation or prediction",
    "an error of two lines with the remedy, because it cannot be halved",
)
@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_a_whole_graph_that_does_not_fit_is_an_error(kind, tmp_path):
    if kind == "links":
        task, data, trainer = links("GALiT")
    else:
        task, trainer = NodeClassification(ENCODERS["GALiT"]), Trainer(**QUIET)
        data = NodeDataModule(path=write_npz(tmp_path / "nodes.npz"))
    trainer.validate(task, data, verbose=False)
    task.encoder.register_forward_pre_hook(lambda *_: run_out())
    with pytest.raises(OutOfMemoryError, match="while encoding the whole graph") as caught:
        trainer.validate(task, data, verbose=False)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and lines[1].startswith("Take a smaller --model.encoder.hidden_channels")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(28, "No space left on device"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_errors_of_running_out_of_memory_are_recognised(error, expected):
    assert is_out_of_memory(error) == expected


def test_the_error_of_the_allocator_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        run_out()
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("total", [0, 1, 7, 64])
@pytest.mark.parametrize("fits", [1, 3, 100])
@pytest.mark.parametrize("size", [None, 1, 10])
def test_halves_cover_the_range_in_order(total, fits, size):
    halves = Halves("counting", "things", "Count less")

    def work(start, stop):
        assert start < stop and stop - start <= (size or total)
        if stop - start > fits:
            run_out()
        return list(range(start, stop))

    assert [x for part in halves(work, total, size) for x in part] == list(range(total))
    assert [x for part in halves(work, total, size) for x in part] == list(range(total))


def test_other_errors_are_raised_and_explanations_are_not_repeated():
    halves = Halves("counting", "things", "Count less")
    with pytest.raises(RuntimeError, match="^something else$"):
        halves(lambda start, stop: (_ for _ in ()).throw(RuntimeError("something else")), 4)
    with pytest.raises(KeyError, match="other"), explain_out_of_memory("thinking", "Think less"):
        raise KeyError("other")
    with (
        pytest.raises(OutOfMemoryError, match="counting, with one of 1 things at a time") as caught,
        explain_out_of_memory("thinking", "Think less"),
    ):
        halves(lambda start, stop: run_out(), 1)
    assert str(caught.value).endswith("Count less")
