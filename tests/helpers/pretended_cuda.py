"""Steps on fake CUDA tensors, and a count of the operators at which the host would wait for the device.

`FakeTensorMode` gives tensors on "cuda" without a GPU. Their values are unknown, so an operator whose result
depends on values gets invented ones: masks are all true, numbers all distinct. With a CPU build of torch,
autograd does not work on such tensors, so backward passes are counted on the CPU.
"""

import ctypes
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphzoo.layers import attention
from graphzoo.ops import sparse

aten = torch.ops.aten
# The symbol of torch's registry of device guards, and the numbers of two device types in it.
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA, _META = 1, 14


class Waits(TorchDispatchMode):
    """Counts operators for which the host waits: `found["item"]`, `found["nonzero"]`, `found["copy"]`, ...

    Args:
        device: Type of the device. "cpu" counts the values that the host reads, for which it would wait if
            the tensors were on another device; copies are not counted then.
    """

    def __init__(self, device="cuda"):
        super().__init__()
        self.device, self.found = device, Counter()
        self._found_none = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet is aten.exponential_ and isinstance(args[0], FakeTensor):
            kwargs = {}  # the fake operator takes no generator
        if not any(x.device.type == self.device for x in tree_leaves((args, kwargs)) if _is_tensor(x)):
            return self._leaving(func, packet, args, kwargs)
        if (name := self._waits_in(packet, args, kwargs)) is not None:
            self.found[name] += 1
            if self.device == "cuda":
                if name == "item" and any(args[0] is x for x in self._found_none):
                    return False
                return _made_up(func, packet, args, kwargs)
        if packet is aten.any:  # part of a check, which must find nothing
            self._found_none.append(out := func(*args, **kwargs))
            return out
        if self.device == "cpu":
            return func(*args, **kwargs)
        if packet in (aten.copy_, aten._to_copy):
            return self._copied(func, packet, args, kwargs)
        if packet in (aten.index_put_, aten.index_put, aten._index_put_impl_) and _on_host(args[2]):
            self.found["copy"] += 1  # a copy of the value
        return func(*args, **kwargs)

    def _leaving(self, func, packet, args, kwargs):
        """Call an operator without an argument on the device."""
        if packet is aten._local_scalar_dense and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1  # the optimizer's step count, on the host
        if self.device == "cpu":
            return func(*args, **kwargs)
        if packet is aten._to_copy and torch.device(kwargs.get("device") or "cpu").type == self.device:
            return self._copied(func, packet, args, kwargs)
        return func(*args, **kwargs)

    def _copied(self, func, packet, args, kwargs):
        if packet is aten._to_copy:
            target = torch.device(kwargs.get("device") or args[0].device).type
            source, waits = args[0].device.type, not kwargs.get("non_blocking")
        else:
            target, source = args[0].device.type, args[1].device.type
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        if source != target and (waits or target == "cpu"):
            self.found["copy"] += 1
        return func(*args, **kwargs)

    def _waits_in(self, packet, args, kwargs):
        """Why the host waits at the operator; None if it does not."""
        if packet in _WAITING:
            return _WAITING[packet]
        if packet is aten.repeat_interleave and kwargs.get("output_size") is None:
            return "repeat_interleave"
        if packet in (aten.index, aten.index_put, aten.index_put_):
            if any(_is_tensor(index) and index.dtype in (torch.bool, torch.uint8) for index in args[1]):
                return "mask"
        return None


_WAITING = {
    aten._local_scalar_dense: "item",
    aten.nonzero: "nonzero",
    aten.masked_select: "mask",
    aten.bincount: "bincount",
    aten.unique_dim: "unique",
    aten._unique: "unique",
    aten._unique2: "unique",
    aten.unique_consecutive: "unique",
    aten.equal: "equal",
}


def _is_tensor(x):
    return isinstance(x, torch.Tensor)


def _on_host(x):
    return _is_tensor(x) and x.device.type == "cpu"


def _made_up(func, packet, args, kwargs):
    x = args[0]
    if packet is aten._local_scalar_dense:
        return True if x.dtype == torch.bool else 1.0 if x.is_floating_point() else 1
    if packet is aten.nonzero:
        return x.new_zeros((x.numel(), x.dim()), dtype=torch.int64)
    if packet is aten.masked_select:
        return x.new_empty(x.numel())
    if packet is aten.bincount:
        return x.new_zeros(args[2] if len(args) > 2 else kwargs.get("minlength", 1), dtype=torch.int64)
    if packet in (aten._unique, aten._unique2):
        same = torch.empty_like(x, dtype=torch.int64)
        return (x.flatten(), same, same.flatten())[: len(func._schema.returns)]
    if packet is aten.repeat_interleave:
        counts = x if len(args) == 1 else args[1]
        return torch.empty_like(counts, dtype=torch.int64) if len(args) == 1 else x.clone()
    if packet in (aten.index, aten.index_put, aten.index_put_):
        places = [
            torch.zeros(i.numel(), dtype=torch.int64, device=i.device)
            if _is_tensor(i) and i.dtype in (torch.bool, torch.uint8)
            else i
            for i in args[1]
        ]
        return func(x, places, *args[2:], **kwargs)
    if packet is aten.equal:
        return True
    raise NotImplementedError(f"nothing is made up for {func}")


class PretendedGenerator(torch.Generator):
    """A CPU generator that reports a CUDA device; nothing is drawn from it."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")

    @property
    def device(self):
        return torch.device("cuda", 0)


class PretendedCsr:
    """Replaces sparse matrices, which fake tensors do not support; its products need no synchronisation."""

    def __init__(self, rowptr, col, values, shape):
        self._values, self.shape = values, shape

    def __matmul__(self, x):
        return x.new_empty(self.shape[0], x.shape[1])

    def to(self, dtype):
        return PretendedCsr(None, None, self._values.to(dtype), self.shape)

    def values(self):
        return self._values


@contextmanager
def pretended_cuda(monkeypatch):
    """Fake tensors on "cuda:0", with CUDA and CPU builds of torch.

    Give the device with its number: in CPU builds of torch, `to("cuda")` is the meta device here.
    """
    monkeypatch.setattr(torch, "Generator", PretendedGenerator)
    monkeypatch.setattr(attention, "_global_state_of", lambda generator: nullcontext())
    monkeypatch.setattr(sparse, "_csr_tensor", PretendedCsr)
    monkeypatch.setattr(torch.sparse, "sampled_addmm", lambda pattern, *args, **kwargs: pattern)
    with _guard(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


@contextmanager
def _guard():
    """In CPU builds of torch, register the meta device's guard, which does nothing, for CUDA."""
    if torch.version.cuda is not None:
        yield
        return
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, _GUARDS)
    except (OSError, ValueError):
        pytest.skip("this torch does not say where its devices are registered")
    before, guards[_CUDA] = guards[_CUDA], guards[_META]
    try:
        yield
    finally:
        guards[_CUDA] = before


@contextmanager
def autocast_to(dtype):
    """`torch.autocast("cuda", dtype)`, which torch refuses without a GPU; None for no autocast."""
    if dtype is None:
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def move_weights(module, device="cuda"):
    """Replace a LightningModule's parameters and buffers by fake ones on the device, in `pretended_cuda`."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                made = torch.empty(value.shape, dtype=value.dtype, device=device)
                part._parameters[name] = torch.nn.Parameter(made, requires_grad=value.requires_grad)
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=device)
    module._device = torch.device(device, 0)
