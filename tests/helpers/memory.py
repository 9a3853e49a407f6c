"""Memory that a computation allocates, summed over its operators and so equal in every run."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryRecorder(TorchDispatchMode):
    """Records every tensor that an operator returns, in forward and backward passes.

    Attributes:
        largest: Number of elements of the largest tensor.
        peak_bytes: Largest size of all live storages together.
        written_bytes: Bytes that all operators returned, without views; a measure of work.
    """

    def __init__(self):
        super().__init__()
        self.largest = self.peak_bytes = self.written_bytes = 0
        self._live = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if _is_dense(x)}
        for tensor in tree_leaves(out):
            if not _is_dense(tensor):
                continue
            self.largest = max(self.largest, tensor.numel())
            storage = tensor.untyped_storage()
            if not func.is_view:
                self.written_bytes += tensor.numel() * tensor.element_size()
            if id(storage) not in given and id(storage) not in self._live:
                self._live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self._live.pop, id(storage), None)
        self.peak_bytes = max(self.peak_bytes, sum(self._live.values()))
        return out


def _is_dense(x):
    return isinstance(x, torch.Tensor) and x.layout is torch.strided
