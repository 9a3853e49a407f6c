"""Using a trained model: `graphzoo.load(run).predict(...)`. Loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.inference.explain import Explanation as Explanation
    from graphzoo.inference.export import export_run as export_run
    from graphzoo.inference.link_model import LinkModel as LinkModel
    from graphzoo.inference.loading import load as load
    from graphzoo.inference.model import KGModel as KGModel
    from graphzoo.inference.node_model import NodeModel as NodeModel

__getattr__, __dir__, __all__ = attach(__name__)
