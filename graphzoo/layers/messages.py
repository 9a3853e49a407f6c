"""The contribution of each edge to a score: the derivative with respect to the weight of its messages.

Message-passing kernels do not store messages, so there is no tensor of edge weights to differentiate. The
derivative is computed from the input of each layer and the gradient of its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphzoo.ops.relational_spmm import QueryGraph, RelationalGraph, relational_spmm

_CHUNK_ELEMENTS = 2**22  # of the messages [edges, B, D] that are computed at once


class _Call(NamedTuple):
    module: Any
    states: Tensor
    relation: Tensor
    result: Tensor


class RecordedMessages:
    """Recorded calls of message layers, by the thread that created this object; see `recorded_messages`."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self._thread = get_ident()

    def note(self, module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> None:
        """Record a call `module(states, relation, graph, edge_mask)`; a forward hook of message layers."""
        if get_ident() == self._thread:
            self.calls.append(_Call(module, arguments[0].detach(), arguments[1].detach(), result))

    def edge_gradients(
        self, score: Tensor, graph: RelationalGraph | QueryGraph, edge_mask: Tensor | None
    ) -> Tensor:
        r"""Derivative of a score with respect to the weight of every edge, summed over all recorded layers.

        .. math:: \frac{\partial s}{\partial w_{(u, r, v)}} = \sum_{\text{layers}}
            \langle \frac{\partial s}{\partial \mathrm{aggregated}_v}, z_u \circ \mathrm{relation}_r \rangle

        Args:
            score: Scalar computed from the results of the recorded calls.
            graph: The graph of the calls, a `RelationalGraph` or a `QueryGraph` of one query.
            edge_mask: The edge mask of the calls, [E], bool, or None.

        Returns:
            [E], in the order of `graph.edge_index`; 0 for edges that the mask leaves out.
        """
        total = score.new_zeros(graph.num_edges)
        if not self.calls:
            return total
        results = [call.result for call in self.calls]
        gradients = torch.autograd.grad(score, results, allow_unused=True)
        for call, gradient in zip(self.calls, gradients, strict=True):
            if gradient is None:  # the score does not depend on this layer
                continue
            relation = call.relation.to(call.states.dtype)
            with torch.no_grad():
                aggregated = relational_spmm(call.states, relation, graph, edge_mask=edge_mask)
            with torch.enable_grad():
                aggregated.requires_grad_()
                (at_sum,) = torch.autograd.grad(
                    call.module.update(call.states, aggregated), aggregated, gradient
                )
            _add_products(total, call.states, relation, at_sum, graph)
        return total if edge_mask is None else total * edge_mask


def _add_products(
    total: Tensor, states: Tensor, relation: Tensor, gradient: Tensor, graph: RelationalGraph | QueryGraph
) -> None:
    """Add <gradient_v, states_u * relation_r> of every edge to `total` [E], some edges at a time."""
    size = max(1, _CHUNK_ELEMENTS // max(1, states[0].numel()))
    source, target = graph.edge_index
    for start in range(0, graph.num_edges, size):
        part = slice(start, start + size)
        message = states[source[part]] * relation[graph.edge_type[part]]
        total[part] += (message * gradient[target[part]]).flatten(1).sum(1)


@contextmanager
def recorded_messages(encoder: nn.Module, kind: type[nn.Module]) -> Iterator[RecordedMessages]:
    """A context that records the calls of an encoder's message layers.

    Gradients are enabled in it, even if the caller has disabled them or frozen parameters.

    Args:
        encoder: The encoder.
        kind: Class of its message layers. Their `forward(states [N, B, D], relation [R, B, D], graph,
            edge_mask)` must return `update(states, sums of messages)`.
    """
    recorded = RecordedMessages()
    frozen = [parameter for parameter in encoder.parameters() if not parameter.requires_grad]
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for module in encoder.modules():
            if isinstance(module, kind):
                stack.callback(module.register_forward_hook(recorded.note).remove)
        try:
            for parameter in frozen:  # else autograd may record nothing
                parameter.requires_grad_()
            yield recorded
        finally:
            for parameter in frozen:
                parameter.requires_grad_(False)
