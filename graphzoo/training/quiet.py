"""Hides messages of other libraries that do not help users of the command."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator

# Lightning's tips for paid add-ons, its lines about missing hardware, and what the command itself reports.
_ADVERTISEMENT = re.compile(
    "^(💡|[TH]PU available: False|GPU available: False|`Trainer.fit` stopped)"
    "|litlogger|litmodels|Restoring states from|Loaded model weights|Restored all states"
    "|Found current_model_state in the checkpoint"
)
_LOGGERS = ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero")
_SEEDS = "lightning.fabric.utilities.seed"
_DULL = (
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*does not have many workers.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*The number of training batches .* is smaller than the logging interval.*",
    ".*srun.*",
    ".*Sparse CSR tensor support is in beta state.*",
    # Every process computes the same metrics from gathered ranks, so that averaging would change nothing.
    ".*sync_dist=True.*",
    ".*Be aware that when using `ckpt_path`.*",
    # configure_model only builds weights once the data are known, and none of our strategies shards them.
    # A checkpoint's `state_dict` holds the averages, which are the weights that a test evaluates.
    ".*WeightAveraging callback with a model that overrides the configure_model.*",
    ".*WeightAveraging callback, but loading a checkpoint outside the 'fit' stage.*",
)


@contextlib.contextmanager
def quiet(*, with_limits: bool = True) -> Iterator[None]:
    """Hide messages that do not help users of the command while the block runs.

    Args:
        with_limits: Whether Lightning's message that the run's time limit was reached is shown.
    """

    def is_shown(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not _ADVERTISEMENT.search(message) and (
            with_limits or not message.startswith("Time limit reached")
        )

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    seeds = logging.getLogger(_SEEDS)
    level = seeds.level
    with warnings.catch_warnings():
        for pattern in _DULL:
            warnings.filterwarnings("ignore", message=pattern)
        for logger in loggers:
            logger.addFilter(is_shown)
        seeds.setLevel(logging.WARNING)
        try:
            yield
        finally:
            seeds.setLevel(level)
            for logger in loggers:
                logger.removeFilter(is_shown)
