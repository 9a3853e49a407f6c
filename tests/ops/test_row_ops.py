"""The fused row operations of KnowFormer: compiled kernels, compared with torch's operations and autograd."""

import importlib
import importlib.util
import time

import pytest
import torch
from helpers.pretended_cuda import autocast_to
from helpers.row_cases import (
    CASES,
    layer_arguments,
    mlp_arguments,
    output,
    outputs_and_gradients,
    run_layer,
    run_mlp,
)
from helpers.spmm_cases import backend_device

from graphzoo.ops import row_kernels
from graphzoo.ops.eager import float32_precision, full_float32, rows_in_autocast, runs_compiled
from graphzoo.ops.prototype_layer import prototype_layer
from graphzoo.ops.relational_spmm.query_graph import to_query_major
from graphzoo.ops.row_kernels import block_rows, piece_bounds
from graphzoo.ops.threads import run_pieces

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}  # relative to the largest value
# Entities, queries, channels: several blocks and pieces, a single row, an odd width.
SHAPES = [(700, 6, 32), (1, 1, 8), (9, 2, 6)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_compiled_and_plain_agree_in_output_and_every_gradient(make, run, options, shape, dtype):
    torch.manual_seed(0)
    arguments = make(shape, dtype)
    plain = outputs_and_gradients(arguments, run, "naive", **options)
    compiled = outputs_and_gradients(arguments, run, "numba", **options)
    for expected, found in zip(plain, compiled, strict=True):
        assert (expected is None) == (found is None)
        if expected is None:
            continue
        # A single entity attends only to itself, so the gradients of its queries are zero up to rounding.
        scale = max(float(expected.abs().max()), 1e-2)
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("backend", ["numba", "triton"])
def test_heads_of_norm_zero_have_no_gradient_in_any_backend(backend):
    """At two entities, queries and keys are zero; 1 / norm would be 1e12 there."""
    if backend == "triton":
        pytest.importorskip("triton", reason="Triton is not installed")
    torch.manual_seed(0)
    arguments = layer_arguments((5, 2, 16), torch.float32)
    arguments[0][:2] = 0  # states
    arguments[4].zero_()  # biases of queries and keys
    device = backend_device(backend)
    plain = outputs_and_gradients(arguments, run_layer, "naive")
    found = outputs_and_gradients([x.to(device) for x in arguments], run_layer, backend)
    for expected, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other.cpu(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_compiled_gradients_agree_with_finite_differences(make, run, options):
    torch.manual_seed(2)
    arguments = make((5, 2, 4), torch.float64)
    used = outputs_and_gradients(arguments, run, "numba", **options)[1:]
    leaves = [x.clone().requires_grad_(g is not None) for x, g in zip(arguments, used, strict=True)]
    assert torch.autograd.gradcheck(lambda *given: run(list(given), "numba", **options), leaves)


@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_the_number_of_threads_changes_no_bit(make, run, options):
    torch.manual_seed(3)
    arguments = make((4000, 5, 32), torch.float32)
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(outputs_and_gradients(arguments, run, "numba", **options))
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(*found, strict=True):
        assert (one is None and three is None) or torch.equal(one, three)


@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_a_nan_in_any_argument_spreads_to_the_same_entries(make, run, options):
    torch.manual_seed(4)
    arguments = make((30, 2, 8), torch.float32)
    for i, argument in enumerate(arguments):
        with_nan = argument.clone()
        with_nan[(0,) * argument.dim()] = float("nan")
        changed = [*arguments[:i], with_nan, *arguments[i + 1 :]]
        plain, compiled = (run(changed, backend, **options).isnan() for backend in ("naive", "numba"))
        assert torch.equal(plain, compiled), f"argument {i}"


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("make", "run", "options"), CASES[:3])
def test_rows_of_small_variance_are_normalised_equally(make, run, options, dtype):
    """At variances of about 1e-6, the eps that is added to them matters."""
    torch.manual_seed(5)
    arguments = [1e-3 * argument for argument in make((30, 2, 8), dtype)]
    expected, found = (run(arguments, backend, **options) for backend in ("naive", "numba"))
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE[dtype] * float(expected.abs().max()))


TRITON = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")


def close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            scale = max(float(other.abs().max()), 1e-2)
            torch.testing.assert_close(one.to(other), other, rtol=0, atol=tolerance * scale)


@TRITON
@pytest.mark.parametrize("shape", [(70, 3, 32), (1, 1, 16), (40, 2, 64), (33, 5, 16)])
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_cuda_kernels_agree_in_output_and_every_gradient(make, run, options, shape):
    """In Triton's interpreter if there is no GPU. Shapes: several blocks, one row, a partial last block."""
    torch.manual_seed(6)
    arguments = make(shape, torch.float32)
    plain, found = (outputs_and_gradients(arguments, run, name, **options) for name in ("naive", "triton"))
    close(found, plain, 1e-5)


@TRITON
@pytest.mark.parametrize(("make", "run", "options"), [case for case in CASES if "layer" not in case.id])
def test_cuda_kernels_pad_odd_widths(make, run, options):
    torch.manual_seed(7)
    arguments = make((9, 2, 6), torch.float32)
    plain, found = (outputs_and_gradients(arguments, run, name, **options) for name in ("naive", "triton"))
    close(found, plain, 1e-5)


@TRITON
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_cuda_kernels_keep_states_in_bf16_and_sums_in_float32(make, run, options):
    """As under autocast, rows are bf16 and parameters float32; results are close to those of float32 rows."""
    torch.manual_seed(8)
    arguments = [x.bfloat16().float() for x in make((70, 3, 32), torch.float32)]
    plain = outputs_and_gradients(arguments, run, "naive", **options)
    halves = [x.bfloat16() if x.dim() == 3 else x for x in arguments]
    found = outputs_and_gradients(halves, run, "triton", **options)
    wanted = [torch.bfloat16 if x.dim() == 3 else torch.float32 for x in arguments]
    assert [x.dtype for x in found[1:] if x is not None] == [
        dtype for dtype, x in zip(wanted, found[1:], strict=True) if x is not None
    ]
    for one, other in zip(found, plain, strict=True):
        if other is not None:  # norms only: rounding may change the sign of a hidden unit near zero
            assert float((one.float() - other).norm()) <= 0.1 * float(other.norm())


@TRITON
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_cuda_kernels_propagate_nan(make, run, options):
    torch.manual_seed(9)
    arguments = make((30, 2, 16), torch.float32)
    for i, argument in enumerate(arguments):
        with_nan = argument.clone()
        with_nan[(0,) * argument.dim()] = float("nan")
        changed = [*arguments[:i], with_nan, *arguments[i + 1 :]]
        plain, found = (output(changed, run, backend, **options).isnan() for backend in ("naive", "triton"))
        assert torch.equal(plain, found), f"argument {i}"


@TRITON
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_cuda_kernels_take_states_query_by_query(make, run, options):
    torch.manual_seed(10)
    arguments = make((20, 3, 16), torch.float32)
    turned = [to_query_major(x) if x.dim() == 3 else x for x in arguments]
    close([output(turned, run, "triton", **options)], [output(arguments, run, "triton", **options)], 1e-6)


@TRITON
@pytest.mark.parametrize(("make", "run", "options"), CASES)
def test_cuda_kernels_take_a_batch_without_queries(make, run, options):
    # a small last batch may leave none for some process
    arguments = make((20, 0, 16), torch.float32)
    plain, found = (outputs_and_gradients(arguments, run, name, **options) for name in ("naive", "triton"))
    assert [x is None for x in found] == [x is None for x in plain]
    for one, other in zip(found, plain, strict=True):
        assert other is None or (one.shape == other.shape and torch.equal(one, other))


@TRITON
def test_cuda_kernels_use_64_bit_offsets_if_rows_are_far_apart(monkeypatch):
    """That is the case if a block spans 2^31 numbers. On small rows, such offsets give the same bits."""
    from graphzoo.ops.prototype_layer import triton as kernels

    for queries, wanted in ((2**21 - 1, kernels.tl.int32), (2**21, kernels.tl.int64)):
        states = torch.empty(40, queries, 32, device="meta")
        assert kernels._settings(states, 4)[1]["INDEX"] is wanted
    torch.manual_seed(9)
    arguments = layer_arguments((70, 3, 32), torch.float32)
    near = outputs_and_gradients(arguments, run_layer, "triton")
    monkeypatch.setattr(kernels, "_FAR", 1)
    far = outputs_and_gradients(arguments, run_layer, "triton")
    assert all(torch.equal(x, y) for x, y in zip(near, far, strict=True) if x is not None)


@TRITON
def test_cuda_kernels_refuse_heads_that_do_not_split_a_row():
    with pytest.raises(ValueError, match="widths 16, 32 and 64"):
        run_layer(layer_arguments((4, 2, 24), torch.float32), "triton")


def test_pieces_cover_all_rows_once_and_keep_to_blocks():
    for num_rows in (1, 255, 256, 1025, 100_000):
        for block in (1, 64, 256):
            bounds = piece_bounds(num_rows, block)
            assert bounds[0] == 0 and bounds[-1] == num_rows
            assert all(one < other for one, other in zip(bounds, bounds[1:], strict=False))
            assert all(bound % block == 0 for bound in bounds[:-1])


def test_blocks_stay_below_the_size_at_which_blas_starts_threads():
    for channels in (1, 8, 32, 64, 512, 1024):
        assert block_rows(channels) >= 1
        assert block_rows(channels) == 1 or block_rows(channels) * channels**2 <= 1 << 18


def test_compiled_kernels_take_full_precision_on_the_cpu_only():
    x = torch.ones(2, 2)
    assert runs_compiled(x, x) and runs_compiled(x.double())
    assert not runs_compiled(x, x.double())
    assert not runs_compiled(x.bfloat16())
    assert not runs_compiled(x.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not runs_compiled(x)


def test_unsupported_arguments_are_refused():
    arguments = layer_arguments((4, 2, 8), torch.float32)
    with pytest.raises(ValueError, match="l2"):
        prototype_layer(
            *arguments[:3], (arguments[3], arguments[4]), tuple(arguments[5:]), num_heads=2, norm="fro",
            backend="numba",
        )  # fmt: skip
    with pytest.raises(ValueError, match="x or extra"):
        run_mlp(mlp_arguments((2, 2, 4), torch.float32), None, has_x=False, has_extra=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_take_rows_in_the_type_of_autocast(dtype):
    rows = torch.ones(3, 4)
    with autocast_to(dtype):
        narrow, none = rows_in_autocast(rows, None)
    assert narrow.dtype == dtype and none is None
    assert rows_in_autocast(rows)[0] is rows


def test_cached_code_depends_on_the_file_of_its_helpers(monkeypatch):
    """By itself, numba checks the kernel's file only and would keep the code of a changed helper."""

    def kernel(x):
        return x + 1

    stamps = []
    for digest in ("one", "two"):
        monkeypatch.setattr(row_kernels, "_HELPERS", digest)
        stamps.append(row_kernels.jit(kernel)._cache._cache_file._source_stamp)
    assert stamps[0] != stamps[1] and "one" in stamps[0]


@pytest.mark.parametrize("place", range(4))
def test_after_an_error_no_piece_is_running(monkeypatch, place):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    begun, ended = [], []

    def work(piece):
        begun.append(piece)
        time.sleep(0.01)
        ended.append(piece)
        if piece == place:
            raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        run_pieces(work, 50)
    assert sorted(begun) == sorted(ended) and len(begun) < 50
    now = list(begun)
    time.sleep(0.05)
    assert begun == now


@pytest.mark.parametrize("switch", ["tf32", "ieee"])
def test_torchs_newer_precision_setting_is_understood(switch):
    before = torch.get_float32_matmul_precision()
    try:
        torch.backends.cuda.matmul.fp32_precision = switch
        assert float32_precision() == {"tf32": "high", "ieee": "highest"}[switch]
        with full_float32("cuda"):
            assert float32_precision() == "highest"
        assert float32_precision() == {"tf32": "high", "ieee": "highest"}[switch]
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float16, None), (torch.float32, torch.float16)])
def test_sums_over_all_nodes_are_not_made_in_float16(monkeypatch, dtype, autocast):
    """float16 ends at 65,504, and gradients of a mean over many nodes underflow in it."""
    taken, prototype_module = [], importlib.import_module("graphzoo.ops.prototype_layer")
    monkeypatch.setattr(prototype_module, "row_backend", lambda *_: "triton")
    monkeypatch.setattr(prototype_module.naive, "prototype_layer", lambda *_, **__: taken.append("naive"))
    states, weight = torch.randn(3, 2, 16).to(dtype), torch.randn(32, 16).to(dtype)
    with autocast_to(autocast):
        prototype_layer(states, states, None, (weight, weight[:, 0]), (), num_heads=2)
    assert taken == ["naive"]
