"""Names that runs and what reads them agree on. Standard library only."""

from __future__ import annotations

__all__ = ["BEST_VALIDATION"]

BEST_VALIDATION = "best/validation"
"""Weights & Biases: the best value of the monitored validation metric, whatever it is called."""
