"""The sums of `numba.py` for narrow rows of 16, 32, ... 128 features, such as those of one query.

With so few features, the overhead of a compiled loop (bounds, remainders, checks whether rows overlap) takes
longer than its arithmetic. Here the sum of a segment stays in vector registers while its edges are read.
numba has no type for vectors. So this module generates the LLVM instructions of a segment, once for each
number of vectors. It computes the same products and sums as the loop in `numba.py`, in the same order, with
the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba import core, types
from numba.extending import intrinsic

from graphzoo.ops.row_kernels import jit

# Features of a vector. LLVM maps it to one, two or four registers, depending on the processor.
LANES = 16
# The sums of more vectors do not fit into registers, and the loop in `numba.py` is fast for wider rows.
MAX_VECTORS = 8

# Allows a product and a sum in one instruction, as the loop in `numba.py` does.
_CONTRACT = ("contract",)
_INT = ir.IntType(64)
cgutils: Any = core.cgutils
config: Any = core.config


def _code_of_segment(
    typing: Any,
    out: Any,
    segment: Any,
    first: Any,
    second: Any,
    a: Any,
    b: Any,
    vectors: Any,
    e: Any,
    stop: Any,
) -> tuple[Any, Any]:
    """Generate `out[segment] = sum_e a[first[e]] * b[second[e]]` for edges `e..stop`, in vectors.

    A row has `len(vectors)` vectors. The first step sums one to four edges, so that the number of remaining
    edges is a multiple of four; these are summed four at a time.
    """
    signature = types.void(out, types.intp, first, second, a, b, vectors, types.intp, types.intp)
    kinds, count, number = signature.args, vectors.count, a.dtype

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        out, segment, first, second, a, b, _, e, stop = values
        data = {
            value: context.make_array(kind)(context, builder, value).data
            for kind, value in zip(kinds, values, strict=True)
            if isinstance(kind, types.Array)
        }
        vector = ir.VectorType(context.get_data_type(number), LANES)

        def pointers(array: Any, row: Any) -> list[Any]:
            """Pointers to the vectors of a row."""
            begin = builder.mul(row, _INT(count * LANES))
            places = (builder.add(begin, _INT(i * LANES)) for i in range(count))
            return [
                builder.bitcast(builder.gep(data[array], [place]), vector.as_pointer()) for place in places
            ]

        def load_row(array: Any, index: Any, edge: Any) -> list[Any]:
            """Load the vectors of the row that an edge refers to."""
            row = builder.load(builder.gep(data[index], [edge]))
            if row.type != _INT:
                row = builder.sext(row, _INT)
            return [builder.load(place, align=number.bitwidth // 8) for place in pointers(array, row)]

        def products(e: Any, edges: int) -> list[Any]:
            """Sum of the products of the next `edges` edges, as vectors."""
            sums: list[Any] = []
            for i in range(edges):
                edge = builder.add(e, _INT(i))
                pairs = zip(load_row(a, first, edge), load_row(b, second, edge), strict=True)
                terms = [builder.fmul(x, y, flags=_CONTRACT) for x, y in pairs]
                sums = terms if not i else list(map(add, sums, terms))
            return sums

        def add(x: Any, y: Any) -> Any:
            return builder.fadd(x, y, flags=_CONTRACT)

        totals = [cgutils.alloca_once(builder, vector) for _ in range(count)]
        for total in totals:
            builder.store(ir.Constant(vector, None), total)
        begin = cgutils.alloca_once_value(builder, e)
        summed = builder.append_basic_block("summed")
        left = builder.sub(stop, e)
        # The first step takes 1 to 4 edges; 0 if the segment is empty.
        several = builder.add(builder.and_(builder.sub(left, _INT(1)), _INT(3)), _INT(1))
        cases = builder.switch(builder.select(builder.icmp_signed(">", left, _INT(0)), several, left), summed)
        for edges in range(1, 5):
            with builder.goto_block(builder.append_basic_block(f"begin_with_{edges}")):
                cases.add_case(_INT(edges), builder.basic_block)
                for total, value in zip(totals, products(e, edges), strict=True):
                    builder.store(value, total)
                builder.store(builder.add(e, _INT(edges)), begin)
                builder.branch(summed)
        builder.position_at_end(summed)
        with cgutils.for_range_slice(builder, builder.load(begin), stop, _INT(4)) as (edge, _):
            for total, value in zip(totals, products(edge, 4), strict=True):
                builder.store(add(builder.load(total), value), total)
        for total, place in zip(totals, pointers(out, segment), strict=True):
            builder.store(builder.load(total), place, align=number.bitwidth // 8)
        return context.get_dummy_value()

    return signature, generate


_sum_segment: Any = intrinsic(_code_of_segment)


@partial(jit, forceinline=False, fastmath={"contract"})
def sum_narrow_products(
    offsets: Any, first: Any, second: Any, a: Any, b: Any, out: Any, vectors: Any, begin: int, end: int
) -> None:
    """Write `out[s] = sum_e a[first[e]] * b[second[e]]` for the segments `begin..end`.

    `vectors` is a tuple with one entry for each vector of a row. Only its length is used, since numba knows
    the length of a tuple when it compiles.
    """
    for s in range(begin, end):
        _sum_segment(out, s, first, second, a, b, vectors, offsets[s], offsets[s + 1])


def vectors_of(size: int) -> tuple[int, ...]:
    """The argument `vectors` for rows of `size` features; empty if such rows are not supported here.

    They are not where NUMBA_DISABLE_JIT switches the compiler off.
    """
    count, rest = divmod(size, LANES)
    return () if rest or count > MAX_VECTORS or config.DISABLE_JIT else (0,) * count
