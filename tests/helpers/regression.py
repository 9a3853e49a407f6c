"""A small module of another package."""

import torch
from lightning.pytorch import LightningModule


class Regression(LightningModule):
    """Logs one metric, and does not say that checkpoints are chosen by it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch):
        return self.layer(batch).square().mean()

    def validation_step(self, batch):
        self.log("val/error", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
