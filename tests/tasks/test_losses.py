"""The training loss of steps and epochs, as it is logged."""

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn

from graphzoo.tasks.losses import LogsLosses


class Epochs(LogsLosses):
    """Logs the mean over an epoch of losses that are the numbers of the steps."""

    logs_epochs = True

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def training_step(self, batch, batch_idx):
        self.collect_loss(torch.full((2,), float(self.global_step)), 2)
        return self.weight * 0

    def train_dataloader(self):
        return torch.zeros(4)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())


def fit(task, folder, **hooks):
    """Train for two epochs of four steps, and return what was logged at the end of each."""
    logged = []
    hooks = {"on_train_epoch_end": lambda trainer, task: logged.append(float(task.latest_loss)), **hooks}
    settings = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    settings |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    trainer = Trainer(max_epochs=2, callbacks=[LambdaCallback(**hooks)], **settings)
    trainer.fit(task)
    return logged, float(trainer.callback_metrics["train/loss"])


@pytest.mark.filterwarnings("ignore")
def test_the_loss_of_an_epoch_is_the_mean_of_its_own_steps(tmp_path):
    task = Epochs()
    with pytest.raises(ZeroDivisionError):
        fit(task, tmp_path, on_train_batch_end=lambda trainer, *_: 1 / (2 - trainer.global_step))
    assert fit(task, tmp_path) == ([1.5, 5.5], 5.5), "without the steps of the fit that failed"


def test_losses_of_low_precision_are_summed_in_float32():
    """In bfloat16, 301 is 300 or 302."""
    task = LogsLosses()
    task.collect_loss(torch.ones(301, dtype=torch.bfloat16), 301)
    assert task.step_loss.tolist() == [1.0, 1.0]


def test_a_step_without_samples_logs_no_loss():
    """With few training nodes, some parts of a graph have none."""
    task = LogsLosses()
    task.collect_loss(torch.zeros(0), 0)
    assert task.step_loss is None
