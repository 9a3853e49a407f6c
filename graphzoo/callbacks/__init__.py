"""Lightning callbacks and a logger that every run of the command uses. Names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.callbacks.averaging import WarmupEMAWeightAveraging as WarmupEMAWeightAveraging
    from graphzoo.callbacks.best_checkpoint import BestCheckpoint as BestCheckpoint
    from graphzoo.callbacks.budget import LinkBudget as LinkBudget
    from graphzoo.callbacks.budget import QueryBudget as QueryBudget
    from graphzoo.callbacks.diagnostics import Diagnostics as Diagnostics
    from graphzoo.callbacks.evaluation_files import EvaluationFiles as EvaluationFiles
    from graphzoo.callbacks.last_checkpoint import Interrupted as Interrupted
    from graphzoo.callbacks.last_checkpoint import LastCheckpoint as LastCheckpoint
    from graphzoo.callbacks.metrics_file import MetricsFile as MetricsFile
    from graphzoo.callbacks.nan_guard import NanGuard as NanGuard
    from graphzoo.callbacks.progress import EpochLines as EpochLines
    from graphzoo.callbacks.progress import ProgressBar as ProgressBar
    from graphzoo.callbacks.throughput import Throughput as Throughput
    from graphzoo.callbacks.wandb_run import WandbRun as WandbRun

__getattr__, __dir__, __all__ = attach(__name__)
