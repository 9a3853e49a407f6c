"""Tables of a test of link prediction: histogram of scores, Hits@K over K, links ranked last and first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphzoo.analysis.bins import steps_up_to
from graphzoo.analysis.evaluation import Table
from graphzoo.analysis.nodes import sample_nodes
from graphzoo.metrics.links import link_ranks

_BINS, _FEW = 40, 20
# With more scores there is no histogram: it would copy hundreds of megabytes.
_MOST_SCORES = 2**25


def link_tables(
    positive: Tensor, negative: Tensor, links: Tensor | None = None, nodes: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Make the tables `scores`, `hits`, `worst` and `best`.

    Args:
        positive: Scores of links, [P], NaN if not scored.
        negative: Scores of negatives, NaN if not scored: a pool that all links share, [Q], or K negatives of
            each link, [P, K].
        links: Source and target of the links, [P, 2]; None leaves out `worst` and `best`.
        nodes: Names of all nodes; empty for their numbers.

    Returns:
        The tables; none if no link was ranked. There is no table `scores` of more than 33 million scores.
    """
    seen = ~positive.isnan() & (~negative.isnan()).any(-1)
    if not bool(seen.any()):
        return ()
    positive, negative = positive[seen], negative[seen] if negative.dim() == 2 else negative
    tables = []
    if positive.numel() + negative.numel() <= _MOST_SCORES:
        finite = negative[~negative.isnan()]
        low = min(float(positive.min()), float(finite.min()))
        high = max(float(positive.max()), float(finite.max()))
        edges = _edges(low, high)
        bins = {
            "from": edges[:-1],
            "to": edges[1:],
            "positives": np.histogram(positive.numpy(), edges)[0],
            "negatives": np.histogram(finite.numpy(), edges)[0],
        }
        title = "Scores of links and of other pairs"
        tables.append(Table.of("scores", title, "histogram", bins, x="from", y=("positives", "negatives")))
    optimistic, pessimistic = link_ranks(positive, negative)
    # As in `link_figures`: ties with a pool are lost, and ties with the negatives of a link count half.
    ranks = pessimistic.double() if negative.dim() == 1 else (optimistic + pessimistic).double() / 2
    places = steps_up_to(int(negative.shape[-1]))
    shares = [float((ranks <= k).double().mean()) for k in places]
    data = {"k": places, "hits": shares}
    tables.append(Table.of("hits", "Share of links among the first K", "curve", data, x="k", y=("hits",)))
    if links is None:
        return tuple(tables)
    ends = links[seen.to(links.device)]

    def named(place: int) -> dict[str, Any]:
        source, target = (nodes[end] if nodes else str(end) for end in ends[place].tolist())
        score = float(positive[place])
        return {"source": source, "target": target, "score": score, "rank": float(ranks[place])}

    for name, title, last in (("worst", "Links ranked last", True), ("best", "Links ranked first", False)):
        order = torch.argsort(ranks, stable=True, descending=last)[:_FEW].tolist()
        tables.append(Table.of(name, title, "table", [named(place) for place in order]))
    return tuple(tables)


def estimate_tables(predicted: Tensor, target: Tensor, num_positives: int) -> tuple[Table, ...]:
    """Make the table `estimates` of a test of heuristic estimation, with at most 2,000 sampled pairs.

    Args:
        predicted: Predicted scores of P links and Q other pairs, [P + Q], NaN if not scored.
        target: True scores of the heuristic, [P + Q].
        num_positives: P.

    Returns:
        The table; none if no pair was scored.
    """
    seen = (~predicted.isnan()).nonzero().squeeze(1)
    chosen = seen[sample_nodes(seen.numel())]
    if not chosen.numel():
        return ()
    data = {
        "target": target[chosen].double().tolist(),
        "predicted": predicted[chosen].double().tolist(),
        "pair": ["link" if place < num_positives else "no link" for place in chosen.tolist()],
    }
    title = "Predicted against true scores of the heuristic"
    return (Table.of("estimates", title, "scatter", data, x="target", y=("predicted",), label="pair"),)


def _edges(low: float, high: float) -> NDArray[np.float64]:
    """Edges of equal bins; of a single bin if the numbers are too close, or too far apart, for more."""
    try:
        return np.histogram_bin_edges(np.zeros(0), bins=_BINS, range=(low, high))
    except ValueError:
        return np.array([low, max(high, np.nextafter(low, np.inf))])
