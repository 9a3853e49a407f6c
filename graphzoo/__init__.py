"""graphzoo: graph transformers that simply work.

Importing this package is fast: every name is imported at first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.cli.compare import compare as compare
    from graphzoo.inference import load as load
    from graphzoo.training.fit import fit as fit
    from graphzoo.types import GraphSpec as GraphSpec

__version__ = "0.1.0"

_SUBPACKAGES = {
    *("analysis", "callbacks", "datamodules", "datasets", "decoders", "encoders", "heuristics", "inference"),
    *("layers", "metrics", "ops", "sampling", "tasks", "types"),
}

__all__ = ["GraphSpec", "__version__", "compare", "fit", "load"]

__getattr__, __dir__, _ = attach(__name__, _SUBPACKAGES)
