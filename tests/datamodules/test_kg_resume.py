"""KGDataModule with a real Trainer: order of batches, resuming, and no sampler of Lightning's."""

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from graphzoo.datamodules import KGDataModule


class Recorder(LightningModule):
    """Records the training batches and learns nothing."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append((batch.epoch, *batch.index.tolist()))
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        self.log("targets", float(batch.target.numel()), batch_size=len(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Killed(Exception):
    """Stand-in for the end of the process."""


class Kill(Callback):
    def __init__(self, after):
        self.left = after

    def on_train_batch_end(self, trainer, *args):
        self.left -= 1
        if self.left == 0:
            raise Killed


def run(toy, folder, *, kill=None, ckpt=None, every=1, epochs=3, **kwargs):
    dm = KGDataModule(path=toy, batch_size=16, micro_batch_size=8, **kwargs)
    dm.setup()
    # Every optimiser step takes two loader items, also the last one of an epoch.
    checkpoint = ModelCheckpoint(
        folder, filename="c", every_n_train_steps=every, save_top_k=1, enable_version_counter=False
    )
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[checkpoint, *([Kill(kill)] if kill else [])],
        accumulate_grad_batches=dm.num_micro_batches,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = Recorder()
    try:
        trainer.fit(model, datamodule=dm, ckpt_path=ckpt)
    except Killed:
        assert kill
    return model.seen, trainer


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_every_epoch_has_every_fact_once(toy, tmp_path):
    seen, trainer = run(toy, tmp_path / "run")
    assert [epoch for epoch, *_ in seen] == [0] * 8 + [1] * 8 + [2] * 8
    for epoch in range(3):
        positions = [position for e, *batch in seen if e == epoch for position in batch]
        assert sorted(positions) == list(range(61))
    assert trainer.global_step == 12
    dm = KGDataModule(path=toy, batch_size=16, micro_batch_size=8)
    dm.setup()
    plain = [(batch.epoch, *batch.index.tolist()) for e in range(3) for batch in dm.train_dataloader(e)]
    assert seen == plain


@pytest.mark.parametrize("items", [3, 4, 6, 8, 9, 10, 14, 16, 17, 23])
def test_a_killed_and_resumed_run_has_the_batches_of_an_uninterrupted_one(toy, tmp_path, items):
    """Checkpoints are saved after every second item, so at most two items are repeated."""
    whole, _ = run(toy, tmp_path / "whole")
    before, _ = run(toy, tmp_path / "cut", kill=items)
    assert before == whole[:items]
    after, trainer = run(toy, tmp_path / "cut", ckpt=str(tmp_path / "cut" / "c.ckpt"))
    done = len(whole) - len(after)
    assert after == whole[done:]
    assert items - 2 <= done <= items and done % 2 == 0
    assert trainer.global_step == 12


def test_a_run_with_workers_is_resumed(toy, tmp_path):
    whole, _ = run(toy, tmp_path / "whole", epochs=1)
    run(toy, tmp_path / "cut", kill=4, num_workers=1, epochs=1)
    after, _ = run(toy, tmp_path / "cut", ckpt=str(tmp_path / "cut" / "c.ckpt"), num_workers=1, epochs=1)
    assert after == whole[len(whole) - len(after) :] and len(after) in (4, 6)


def test_a_loader_with_another_batch_size_refuses_the_state(toy):
    dm = KGDataModule(path=toy, batch_size=16)
    dm.setup()
    state = dm.train_dataloader().state_dict()
    other = KGDataModule(path=toy, batch_size=8)
    other.setup()
    with pytest.raises(ValueError, match="batch_size"):
        other.train_dataloader().load_state_dict(state)


def test_state_of_another_epoch_skips_nothing(toy):
    dm = KGDataModule(path=toy, batch_size=16)
    dm.setup()
    loader = dm.train_dataloader(epoch=0)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["given"]) == (0, 2)
    same, later = dm.train_dataloader(epoch=0), dm.train_dataloader(epoch=1)
    same.load_state_dict(state)
    later.load_state_dict(state)
    assert (len(list(same)), len(list(later))) == (2, 4)
    # The state applies to one epoch only.
    assert len(list(same)) == 4


def test_lightning_does_not_replace_the_sampler(toy):
    """`use_distributed_sampler` has its default, and Lightning's own function decides."""
    dm = KGDataModule(path=toy, batch_size=16)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    dm.setup()

    class Distributed:
        use_distributed_sampler = True
        is_distributed = True

    connector = trainer._data_connector
    trainer._accelerator_connector = Distributed()
    for loader in (dm.train_dataloader(), dm.val_dataloader(), dm.test_dataloader()):
        assert not connector._requires_distributed_sampler(loader)
    assert connector._requires_distributed_sampler(torch.utils.data.DataLoader([1, 2]))
