"""The training time of a run, and its rate."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from graphzoo.callbacks import Throughput, throughput


class Tiny(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()

    def test_step(self, batch, batch_idx):
        self.log("test/x", 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
def test_the_time_of_fit_continues_in_a_resume_and_stays_in_a_test(tmp_path):
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    loader = DataLoader(torch.ones(4, 1))
    throughput = Throughput()
    trainer = Trainer(max_epochs=1, enable_checkpointing=False, callbacks=[throughput], **quiet)
    trainer.fit(Tiny(), loader)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    stored = throughput.fit_seconds
    assert stored > 0

    throughput.fit_seconds = stored + 100
    trainer.test(Tiny(), loader, ckpt_path=tmp_path / "one.ckpt", verbose=False)
    assert throughput.fit_seconds == stored + 100
    again = Throughput()
    again.fit_seconds = -1.0
    Trainer(max_epochs=2, enable_checkpointing=False, callbacks=[again], **quiet).fit(
        Tiny(), loader, ckpt_path=tmp_path / "one.ckpt"
    )
    assert again.fit_seconds > stored


def test_the_rate_is_of_all_processes_and_leaves_out_validation(monkeypatch):
    """Two processes, two batches of 30 nodes in 2 s each, and 50 s between these; then a faster epoch."""
    now, logged = [0.0], {}
    monkeypatch.setattr(throughput, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    trainer = SimpleNamespace(world_size=2)
    task = SimpleNamespace(unit="nodes", log=lambda name, value, **_: logged.update({name: value}))
    clock = Throughput()
    clock.on_train_start(trainer, task)

    def epoch(seconds):
        clock.on_train_epoch_start(trainer, task)
        for number in range(2):
            clock.on_train_batch_start(trainer, task, None, number)
            now[0] += seconds
            clock.on_train_batch_end(trainer, task, None, range(30), number)
            now[0] += 50
        clock.on_train_epoch_end(trainer, task)

    epoch(2)
    assert logged == {"train/nodes_per_s": 30.0, "train/seconds": 4.0} and clock.fit_seconds == 104
    epoch(1)
    assert logged == {"train/nodes_per_s": 60.0, "train/seconds": 2.0} and clock.fit_seconds == 206
