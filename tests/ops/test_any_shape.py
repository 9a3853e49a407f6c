"""Operators of random shapes, down to one node and one row, compared with their definitions."""

import hypothesis.strategies as st
import pytest
import torch
from helpers.attention_matrices import explicit_cosine, explicit_prototype, problem, quadratic
from helpers.row_cases import CASES, outputs_and_gradients, row_function
from hypothesis import given, settings

from graphzoo.ops import (
    cosine_linear_attention,
    kernelized_softmax,
    map_rows,
    prototype_attention,
)

SIZE, SMALL = st.integers(1, 12), st.integers(1, 4)
SEED = st.integers(0, 2**31)


def drawn(seed, *shape, count=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(count)]


@settings(max_examples=40)
@given(SIZE, SMALL, SMALL, st.sampled_from(["l2", "fro"]), st.floats(0.01, 5), SEED)
def test_cosine_attention(nodes, heads, channels, norm, bias, seed):
    query, key, value = drawn(seed, nodes, heads, channels)
    found = cosine_linear_attention(query, key, value, norm=norm, bias=bias, eps=bias / 100)
    expected = explicit_cosine(query, key, value, norm, bias, bias / 100)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@settings(max_examples=40)
@given(SIZE, SMALL, SMALL, SMALL, st.sampled_from(["l2", "fro"]), SEED)
def test_prototype_attention(nodes, batch, heads, channels, norm, seed):
    query, key, value = drawn(seed, nodes, batch, heads, channels)
    found = prototype_attention(query, key, value, norm=norm)
    expected = explicit_prototype(query, key, value, norm)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@settings(max_examples=40)
@given(SIZE, SMALL, SMALL, st.integers(1, 9), SMALL, st.booleans(), st.floats(0.2, 2), SEED)
def test_kernelized_softmax(nodes, heads, channels, features, samples, noisy, tau, seed):
    inputs, gumbel = problem((nodes, heads, channels, features, samples), seed=seed)
    gumbel = gumbel if noisy else None
    found = kernelized_softmax(*inputs, tau=tau, gumbel=gumbel)
    torch.testing.assert_close(found, quadratic(*inputs, gumbel, tau), atol=1e-9, rtol=1e-9)


@settings(max_examples=40)
@given(st.integers(1, 30), st.none() | st.integers(1, 100), SEED)
def test_map_rows(length, chunk_rows, seed):
    rows = drawn(seed, length, 3, 4, count=2)
    shared = (drawn(seed + 1, 4, 4, count=1)[0], drawn(seed + 2, 4, count=1)[0])
    found = map_rows(row_function, rows, shared, num_sums=1, chunk_rows=chunk_rows)
    for actual, expected in zip(found, row_function(rows, shared, 0), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(("make", "run", "options"), CASES)
@settings(max_examples=12)
@given(nodes=SIZE, batch=SMALL, channels=st.sampled_from([2, 4, 6, 10]), seed=SEED)
def test_fused_rows(make, run, options, nodes, batch, channels, seed):
    torch.manual_seed(seed)
    arguments = make((nodes, batch, channels), torch.float64)
    plain = outputs_and_gradients(arguments, run, "naive", **options)
    compiled = outputs_and_gradients(arguments, run, "numba", **options)
    for expected, found in zip(plain, compiled, strict=True):
        assert (expected is None) == (found is None)
        if expected is not None:
            scale = max(float(expected.abs().max()), 1e-2)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * scale)
