"""Fused graph operators, each with a plain reference and fast backends.

Importing this module imports torch, but neither numba nor Triton nor torch-scatter: an op loads its backend
at
the first call.
"""

# Eager, because an op's subpackage bears the op's name: here the function takes the name, before anyone sees
# it.
from graphzoo.ops.relational_spmm import RelationalGraph, relational_spmm

__all__ = ["RelationalGraph", "relational_spmm"]
