"""Encoders, one file per paper: `from graphzoo.encoders import KnowFormer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.encoders.base import Encoder as Encoder
    from graphzoo.encoders.base import NodeEncoder as NodeEncoder
    from graphzoo.encoders.base import PairEncoder as PairEncoder
    from graphzoo.encoders.base import QueryEncoder as QueryEncoder
    from graphzoo.encoders.galit import GALiT as GALiT
    from graphzoo.encoders.gnn import GNN as GNN
    from graphzoo.encoders.knowformer import KnowFormer as KnowFormer
    from graphzoo.encoders.knowformer_any import KnowFormerAny as KnowFormerAny
    from graphzoo.encoders.mlp import MLP as MLP
    from graphzoo.encoders.nodeformer import NodeFormer as NodeFormer
    from graphzoo.encoders.pair_gnn import PairGNN as PairGNN
    from graphzoo.encoders.pencil import PENCIL as PENCIL
    from graphzoo.encoders.pyg_transformers import Polynormer as Polynormer
    from graphzoo.encoders.pyg_transformers import SGFormerPyG as SGFormerPyG
    from graphzoo.encoders.sgc import SGC as SGC
    from graphzoo.encoders.sgformer import SGFormer as SGFormer

__getattr__, __dir__, __all__ = attach(__name__)
