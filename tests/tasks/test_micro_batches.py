"""Batches that take too much memory are split into micro-batches, unless the user gives their size."""

import math
from contextlib import nullcontext
from functools import partial
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from helpers.link_graphs import make_link_graph
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import GradientAccumulationScheduler, LambdaCallback
from torch import nn

from graphzoo.callbacks import LastCheckpoint
from graphzoo.callbacks.run_length import Place, what_remains
from graphzoo.datamodules import KGDataModule, LinkDataModule
from graphzoo.encoders import PENCIL, KnowFormer
from graphzoo.tasks import KGCompletion, LinkPrediction, micro_batches

ENTITIES, STEPS = 30, 10
# 280 for training: four batches of 84, of two micro-batches of 42 except for the last, which has one.
TRIPLES = [
    (f"e{i}", f"r{step % 3}", f"e{(i + 1 + step) % ENTITIES}")
    for step in range(STEPS)
    for i in range(ENTITIES)
]
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu",
         "num_sanity_val_steps": 0, "limit_val_batches": 0}  # fmt: skip


def links(**settings):
    sizes = {"hidden_channels": 16, "num_layers": 1, "num_heads": 2, "ffn_channels": 16, "dropout": 0.0}
    data = LinkDataModule(batch_size=64, depth=1, num_neighbors=12, max_nodes=26, **settings)
    data._load = lambda download: make_link_graph()
    return LinkPrediction(partial(PENCIL, **sizes)), data


def triples(batch_size, **settings):
    parts = {"train": TRIPLES[20:], "valid": TRIPLES[:10], "test": TRIPLES[10:20]}
    return KGDataModule.from_triples(parts, batch_size=batch_size, **settings)


def query_task():
    encoder = partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2, dropout=0.0)
    return KGCompletion(encoder, loss="bce")


def queries(**settings):
    return query_task(), triples(64, **settings)


def umls(**settings):
    return query_task(), KGDataModule("umls", batch_size=64, **settings)


class Sizes(Callback):
    """Records the micro-batches that a fit uses."""

    def on_train_start(self, trainer, pl_module):
        self.micro_batch_size = trainer.datamodule.micro_batch_size
        self.accumulated = trainer.accumulate_grad_batches


def fit(make, folder, max_steps=3, ckpt_path=None, accumulate=1, **settings):
    seed_everything(0, verbose=False)
    task, data = make(**settings)
    sizes = Sizes()
    trainer = Trainer(
        callbacks=sizes,
        max_steps=max_steps,
        default_root_dir=folder,
        enable_checkpointing=False,
        accumulate_grad_batches=accumulate,
        **QUIET,
    )
    trainer.fit(task, data, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return task, sizes, trainer


def test_tensors_saved_for_gradients_are_counted():
    """x @ W.t() keeps x for the gradient of W, and relu its result; W does not grow with the batch."""
    layer = nn.Linear(100, 50, bias=False)
    x = torch.randn(30, 100, requires_grad=True)  # so that W is kept, too
    assert micro_batches.kept_bytes(layer, lambda: layer(x).relu()) == 4 * (30 * 100 + 30 * 50)


def test_measuring_changes_nothing():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    micro_batches.kept_bytes(module, lambda: module(torch.randn(5, 3)))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and not module.training


def test_a_frozen_mode_is_measured_as_in_training():
    """In evaluation, dropout keeps no mask."""
    x = torch.randn(5, 3, requires_grad=True)
    needed = [
        micro_batches.kept_bytes(part, partial(part, x)) for part in (nn.Dropout(), nn.Dropout().eval())
    ]
    assert needed[0] == needed[1] > 0


@pytest.mark.parametrize(
    ("budget", "available", "share", "size"),
    [
        (80, None, 8, 8),
        (100, None, 10, 10),
        (99, None, 10, 8),
        (10**6, 8 * 80, 10, 8),
        (10**6, 8 * 79, 10, 4),
    ],
)
def test_the_largest_need_decides_within_a_quarter_of_the_memory_of_each_process(
    monkeypatch, budget, available, share, size
):
    """Of two processes on one CPU; the graphs' samples need 6, 10 and 8 bytes."""
    monkeypatch.setattr(micro_batches, "_probes", lambda datamodule: [6, 10, 8])
    monkeypatch.setattr(micro_batches, "kept_bytes", lambda task, run: micro_batches.PROBED * run())
    monkeypatch.setattr(micro_batches, "_BUDGET", budget)
    monkeypatch.setattr(micro_batches, "available_bytes", lambda device: available)
    task = SimpleNamespace(device=torch.device("cpu"), sample_losses=lambda batch: batch)
    other = torch.tensor(16.0)  # what the other process chooses
    strategy = SimpleNamespace(
        batch_to_device=lambda batch: batch,
        reduce=lambda value, reduce_op: {"min": min, "max": max}[reduce_op](value, other),
    )
    precision = SimpleNamespace(forward_context=nullcontext)
    trainer = SimpleNamespace(strategy=strategy, precision_plugin=precision, num_devices=2)
    assert micro_batches.size_that_fits(task, trainer, None, share) == size


@pytest.mark.parametrize("make", [links, queries])
def test_a_batch_that_takes_too_much_is_split_and_trains_the_same(make, tmp_path, monkeypatch):
    whole, sizes, _ = fit(make, tmp_path)
    assert sizes.micro_batch_size is None and sizes.accumulated == 1, "there is room"
    needed, probed = [], []
    measure = micro_batches.kept_bytes

    def note(task, run):
        needed.append(measure(task, lambda: probed.append(losses := run()) or losses))
        return needed[-1]

    monkeypatch.setattr(micro_batches, "kept_bytes", note)
    fit(make, tmp_path, max_steps=1)
    each = 2 if make is links else 1  # with a negative
    assert [len(losses) for losses in probed] == [each * micro_batches.PROBED]
    monkeypatch.setattr(micro_batches, "_BUDGET", 17 * needed[0] / micro_batches.PROBED)
    cut, sizes, _ = fit(make, tmp_path)
    assert sizes.micro_batch_size == 16, "the largest power of two that fits"
    assert sizes.accumulated == 4
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(cut.state_dict()[name], value, atol=2e-4, rtol=1e-3, msg=name)
    _, sizes, _ = fit(make, tmp_path, micro_batch_size=32)
    assert sizes.micro_batch_size == 32 and sizes.accumulated == 2, "a given size is kept"


@pytest.mark.parametrize("make", [links, queries])
def test_another_fit_chooses_again(make, tmp_path, monkeypatch):
    """A fit resets the sizes that it chose in trainer, data and task."""
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    task, sizes, trainer = fit(make, tmp_path, max_steps=2)
    data = trainer.datamodule
    assert sizes.micro_batch_size == 1 and sizes.accumulated == 64
    assert data.micro_batch_size is None and trainer.accumulate_grad_batches == 1
    monkeypatch.setattr(micro_batches, "_BUDGET", 2**40)
    trainer.fit_loop.epoch_loop.max_steps = 4
    trainer.fit(task, data)
    assert sizes.micro_batch_size is None and sizes.accumulated == 1 and trainer.global_step == 4


def test_a_datamodule_may_have_lightnings_signature_of_the_loader(tmp_path):
    """A user's `train_dataloader` without arguments is enough to measure a batch."""

    class Own(KGDataModule):
        def train_dataloader(self):
            return super().train_dataloader()

    encoder = partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2)
    fit(lambda: (KGCompletion(encoder), Own("umls", batch_size=16)), tmp_path, max_steps=1)


@pytest.mark.parametrize("settings", [{}, {"micro_batch_size": 16}])
def test_a_limit_counts_whole_batches(tmp_path, monkeypatch, settings):
    """It does not count micro-batches."""
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    task, data = queries(**settings)
    limited = Trainer(
        limit_train_batches=2, max_epochs=1, default_root_dir=tmp_path, enable_checkpointing=False, **QUIET
    )
    limited.fit(task, data)
    assert limited.global_step == 2 == limited.limit_train_batches
    task, data = queries(**settings)
    settings = {**QUIET, "limit_val_batches": 1, "enable_checkpointing": False, "default_root_dir": tmp_path}
    validating = Trainer(max_steps=4, val_check_interval=2, **settings)
    steps = []
    monkeypatch.setattr(task, "on_validation_start", lambda: steps.append(validating.global_step))
    validating.fit(task, data)
    assert steps == [2, 4]


def test_the_smallest_micro_batch_is_one_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    _, sizes, _ = fit(links, tmp_path, max_steps=1)
    assert sizes.micro_batch_size == 1


@pytest.mark.parametrize(("batch_size", "size"), [(8, None), (9, 1)])
def test_batches_of_the_probed_size_are_never_cut(tmp_path, monkeypatch, batch_size, size):
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    task, data = queries()
    data.batch_size = batch_size
    _, sizes, _ = fit(lambda: (task, data), tmp_path, max_steps=1)
    assert sizes.micro_batch_size == size


def test_memory_is_measured_with_the_largest_neighbourhoods(tmp_path, monkeypatch):
    needed = []
    measure = micro_batches.kept_bytes
    monkeypatch.setattr(
        micro_batches, "kept_bytes", lambda *args: needed.append(measure(*args)) or needed[-1]
    )
    fit(umls, tmp_path, max_steps=1, neighbourhood=100)
    fit(umls, tmp_path, max_steps=1, neighbourhood=20, later_neighbourhoods={3: 100, 5: 30})
    fit(umls, tmp_path, max_steps=1, neighbourhood=20)
    assert needed[1] > 0.9 * needed[0] > 1.8 * needed[2]


def test_memory_is_measured_with_the_largest_subgraphs_of_a_batch(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(micro_batches, "kept_bytes", lambda task, run: measured.extend(run.args) or 0)
    task, data = links()
    fit(lambda: (task, data), tmp_path, max_steps=1)
    data.micro_batch_size = micro_batches.PROBED
    parts = islice(data.train_dataloader(epoch=0), data.num_micro_batches)
    sizes = [max(part.subgraphs.sizes) for part in parts]
    assert [max(batch.subgraphs.sizes) for batch in measured] == [max(sizes)] and max(sizes) > min(sizes)


def test_batches_are_not_split_if_the_user_accumulates_them(tmp_path, monkeypatch):
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    _, sizes, trainer = fit(queries, tmp_path, max_steps=1, accumulate=2)
    assert sizes.micro_batch_size is None
    assert sizes.accumulated == trainer.accumulate_grad_batches == 2


def test_a_resumed_run_keeps_its_micro_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    _, _, trainer = fit(queries, tmp_path, max_steps=1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    monkeypatch.setattr(micro_batches, "_BUDGET", 2**40)
    _, sizes, _ = fit(queries, tmp_path, max_steps=2, ckpt_path=tmp_path / "last.ckpt")
    assert sizes.micro_batch_size == 1, "dropout and rounding are those of the run"
    stored = torch.load(tmp_path / "last.ckpt", weights_only=True)
    del stored["graphzoo_micro_batch_size"]
    torch.save(stored, tmp_path / "older.ckpt")
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    with pytest.raises(ValueError, match="loader items"):  # without the stored size, batches are split again
        fit(queries, tmp_path, max_steps=2, ckpt_path=tmp_path / "older.ckpt")


@pytest.mark.parametrize("parts", [None, 16, "automatic"])
def test_a_share_of_an_epoch_counts_whole_batches(tmp_path, monkeypatch, parts):
    """A share of micro-batches would end within a batch."""
    monkeypatch.setattr(micro_batches, "_BUDGET", 1 if parts == "automatic" else 2**40)
    task, data = queries(**({"micro_batch_size": parts} if parts == 16 else {}))
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    trainer = Trainer(limit_train_batches=0.75, max_epochs=1, **settings)
    trainer.fit(task, data)
    assert trainer.global_step == int(0.75 * math.ceil(len(data.triples("train")) / 64)) > 2
    assert trainer.limit_train_batches == 0.75, "as before the fit"


@pytest.mark.parametrize(("share", "steps"), [(0.5, 2), (0.0, 0)])
def test_a_share_of_an_epoch_counts_its_shorter_last_batch(tmp_path, share, steps):
    """Four batches: three of two micro-batches, and one of one."""
    task, data = queries()
    data.batch_size, data.micro_batch_size = 84, 42
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    trainer = Trainer(limit_train_batches=share, max_epochs=1, **settings)
    trainer.fit(task, data)
    assert trainer.global_step == steps


def test_less_than_a_batch_is_refused_with_micro_batches(tmp_path):
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    task, data = queries(micro_batch_size=16)
    with pytest.raises(ValueError, match=r"limit_train_batches 0.001 of \d+ batches is less than one"):
        Trainer(limit_train_batches=0.001, max_epochs=1, **settings).fit(task, data)
    scheduler = GradientAccumulationScheduler({0: 2})
    with pytest.raises(ValueError, match="would count the 4 parts that each batch is computed in"):
        Trainer(max_epochs=1, callbacks=[scheduler], **settings).fit(task, data)


@pytest.mark.parametrize("resumes", [False, True])
def test_validation_intervals_across_epochs_count_whole_batches(tmp_path, resumes):
    """An epoch has four batches, of two micro-batches except for the last, which has one."""
    encoder = partial(KnowFormer, hidden_channels=8, num_layers=1, num_heads=2)
    path = tmp_path / "half.ckpt"

    def validated(micro_batch_size):
        data = triples(84, micro_batch_size=micro_batch_size)
        steps, saved = [], []
        last = LastCheckpoint(tmp_path / f"of {micro_batch_size}", minutes=0)
        note = LambdaCallback(
            on_validation_start=lambda trainer, _: steps.append(trainer.global_step),
            on_save_checkpoint=lambda trainer, *_: saved.append((trainer.global_step, len(steps))),
        )
        settings = {**QUIET, "default_root_dir": tmp_path}
        settings |= {"check_val_every_n_epoch": None, "val_check_interval": 3, "limit_val_batches": 1}
        settings |= {"callbacks": [note, last]}
        if resumes:
            trainer = Trainer(max_steps=7, **settings)
            trainer.fit(KGCompletion(encoder), data)
            trainer.save_checkpoint(path)
        Trainer(max_epochs=4, **settings).fit(
            KGCompletion(encoder), data, ckpt_path=path if resumes else None
        )
        assert {3, 6, 9, 15} <= {step for step, _ in saved}
        assert all(validations == step // 3 for step, validations in saved), "saved after the validation"
        return steps

    assert validated(42) == validated(None) == [3, 6, 9, 12, 15]


@pytest.mark.parametrize(
    ("every", "interval", "validated"), [(None, 3, [3, 6]), (1, 2, [2, 4, 6, 8]), (1, 3, [3, 7])]
)
def test_validations_are_those_of_whole_batches_and_are_predicted(tmp_path, every, interval, validated):
    """An epoch has four batches, of two micro-batches except for the last, which has one."""
    for micro_batch_size in (42, None):
        task, _ = queries()
        data = triples(84, micro_batch_size=micro_batch_size)
        steps, predicted = [], []

        def count(trainer, _, predicted=predicted):
            predicted.append(what_remains(trainer, Place()).seconds(step=0.0, validation=1.0))

        note = LambdaCallback(
            on_train_start=count,
            on_validation_start=lambda trainer, _, steps=steps: steps.append(trainer.global_step),
        )
        often = {"check_val_every_n_epoch": every, "val_check_interval": interval, "limit_val_batches": 1}
        settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path, **often}
        Trainer(max_epochs=2, callbacks=[note], **settings).fit(task, data)
        assert steps == validated and predicted == [len(steps)]


def test_another_fit_validates_at_its_own_times(tmp_path):
    task, data = queries()
    data.batch_size, data.micro_batch_size = 84, 42
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path, "limit_val_batches": 1}
    Trainer(max_steps=1, check_val_every_n_epoch=None, val_check_interval=1, **settings).fit(task, data)
    steps = []
    note = LambdaCallback(on_validation_start=lambda trainer, _: steps.append(trainer.global_step))
    Trainer(max_epochs=1, callbacks=[note], **settings).fit(task, data)
    assert steps == [4], "at the end of the epoch"


@pytest.mark.parametrize("by_another", [False, True])
def test_a_failed_fit_does_not_affect_the_next(tmp_path, monkeypatch, by_another):
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    task, data = queries()
    other = queries()[0] if by_another else task
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    fail = LambdaCallback(on_train_batch_end=lambda *_: 1 / 0)
    trainer = Trainer(limit_train_batches=3, max_epochs=1, callbacks=[fail], **settings)
    with pytest.raises(ZeroDivisionError):
        trainer.fit(task, data)
    monkeypatch.setattr(micro_batches, "_BUDGET", 2**40)
    trainer.callbacks[:] = [sizes := Sizes()]
    trainer.fit(other, data)
    assert trainer.global_step == 3 and data.micro_batch_size is None
    assert sizes.micro_batch_size is None and sizes.accumulated == 1, "there is room"


def test_a_size_given_after_a_failed_fit_is_kept(tmp_path, monkeypatch):
    """The message after running out of memory advises to give a smaller size."""
    monkeypatch.setattr(micro_batches, "_BUDGET", 1)
    task, data = queries()
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    fail = LambdaCallback(on_train_batch_end=lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Trainer(limit_train_batches=3, max_epochs=1, callbacks=[fail], **settings).fit(task, data)
    data.micro_batch_size = 2
    sizes = Sizes()
    Trainer(limit_train_batches=3, max_epochs=1, callbacks=[sizes], **settings).fit(queries()[0], data)
    assert data.micro_batch_size == sizes.micro_batch_size == 2


def test_validation_after_all_batches_is_at_the_end_of_the_epoch(tmp_path):
    """Lightning counts micro-batches, of which the last batch may have fewer than the others."""
    task, data = queries()
    data.prepare_data()
    data.setup()
    data.batch_size, data.micro_batch_size = 64, 16
    whole, rest = divmod(len(data.triples("train")), 64)
    assert 0 < rest <= 48, "the last batch has fewer parts"
    whole += 1
    settings = {**QUIET, "enable_checkpointing": False, "default_root_dir": tmp_path}
    validated = []
    count = LambdaCallback(on_validation_end=lambda trainer, _: validated.append(trainer.global_step))
    trainer = Trainer(
        val_check_interval=whole,
        max_epochs=1,
        callbacks=[count],
        **{**settings, "num_sanity_val_steps": 0, "limit_val_batches": 1},
    )
    trainer.fit(task, data)
    assert trainer.global_step == whole and validated == [whole]
    assert trainer.val_check_interval == whole
