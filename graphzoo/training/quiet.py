"""Notices of other libraries that a user can do nothing about."""

from __future__ import annotations

import logging
import warnings

__all__ = [
    "quieten",
]


class _Advertisement(logging.Filter):
    """Drops Lightning's tips for paid add-ons and its lines about hardware that is not there."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        dull = (
            "💡",
            "TPU available: False",
            "HPU available: False",
            "GPU available: False",
            "`Trainer.fit` stopped",
        )
        told = (
            "litlogger",
            "litmodels",
            "Restoring states from",
            "Loaded model weights",
            "Restored all states",
            "Found current_model_state in the checkpoint",
        )
        return not text.startswith(dull) and not any(words in text for words in told)


_FILTER = _Advertisement()


def quieten() -> None:
    """Leave out what tells a user of the command nothing."""
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).addFilter(_FILTER)
    logging.getLogger("lightning.fabric.utilities.seed").setLevel(logging.WARNING)
    for pattern in (
        ".*isinstance\\(treespec, LeafSpec\\).*",
        ".*does not have many workers.*",
        ".*Checkpoint directory .* exists and is not empty.*",
        ".*The number of training batches .* is smaller than the logging interval.*",
        ".*srun.*",
        ".*Sparse CSR tensor support is in beta state.*",
        # Every process computes the same figures from gathered ranks: their mean would be no other.
        ".*sync_dist=True.*",
        ".*Be aware that when using `ckpt_path`.*",
        # Weights are made once the data are known; none of our strategies shards them. A checkpoint's
        # `state_dict` holds the averages, which are what a test is to judge.
        ".*WeightAveraging callback with a model that overrides the configure_model.*",
        ".*WeightAveraging callback, but loading a checkpoint outside the 'fit' stage.*",
    ):
        warnings.filterwarnings("ignore", message=pattern)
