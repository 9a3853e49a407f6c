"""The training time of a run."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from graphzoo.callbacks import Throughput


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
