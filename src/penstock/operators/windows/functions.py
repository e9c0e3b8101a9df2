"""Aggregate functions as partials that can be merged.

Each call has three parts: expressions from rows to partial columns, expressions that merge partial
columns of one group, and one expression from partial columns to the result. Law: merging partials
of any split of the rows, in any grouping, then finishing, gives the result over all the rows
(sums of floats up to rounding, sketches exactly as one sketch over all rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from penstock.base.columns import ORDER
from penstock.base.hashing import stable_hash
from penstock.operators.windows.parts import Parts, one_column, values_of
from penstock.operators.windows.totals import total_mean, total_sum
from penstock.query.aggregates import Call, result_type

REGISTER_BITS = 12
REGISTERS = 1 << REGISTER_BITS
GAMMA = 1.01 / 0.99
"""Bins of the quantile sketch grow by this factor; a bin's middle is within 1 % of its values."""
_COUNTS = 1 << 40
"""More values than any bin will ever have; the numbers of bins fit into the bits that are left."""


def parts_of(number: int, call: Call) -> Parts:
    """Return the parts of a call; its columns are named after its number.

    >>> parts = parts_of(0, Call(function="len"))
    >>> pl.DataFrame({"x": [1, 2]}).select(parts.partial)["__p0"].to_list()
    [2]
    """
    name = f"__p{number}"
    parts = _BUILDERS[call.form](name, call)
    parts = replace(parts, finish=parts.finish.cast(result_type(call)).alias(f"__a{number}"))
    return _constant(name, parts) if call.constant else parts


def _constant(name: str, parts: Parts) -> Parts:
    """Return a call over a literal: to Polars it is the same for a group of any size."""
    row = pl.DataFrame({key: [0] for key in ORDER})
    value = row.group_by(pl.lit(0)).agg(parts.partial).select(parts.finish).to_series()
    literal = pl.lit(value.item(), dtype=value.dtype).alias(name)
    finish = pl.col(name).alias(value.name)
    return Parts(partial=(literal,), merge=(pl.col(name).first(),), finish=finish)


def _len(name: str, call: Call) -> Parts:
    return one_column(name, pl.len().cast(pl.Int64), pl.Expr.sum)


def _size(name: str, call: Call) -> Parts:
    return one_column(name, values_of(call).len().cast(pl.Int64), pl.Expr.sum)


def _count(name: str, call: Call) -> Parts:
    return one_column(name, values_of(call).count().cast(pl.Int64), pl.Expr.sum)


def _make_summable(call: Call) -> pl.Expr:
    """Return values whose sum is exact in 64 bits, or floats."""
    whole = call.dtype is not None and (call.dtype.is_integer() or call.dtype == pl.Boolean)
    return values_of(call).cast(pl.Int64 if whole else pl.Float64)


def _sum(name: str, call: Call) -> Parts:
    return one_column(name, _make_summable(call).sum(), pl.Expr.sum)


def _mean(name: str, call: Call) -> Parts:
    total, count = f"{name}_sum", f"{name}_n"
    return Parts(
        partial=(
            _make_summable(call).sum().alias(total),
            values_of(call).count().cast(pl.Int64).alias(count),
        ),
        merge=(pl.col(total).sum(), pl.col(count).sum()),
        finish=pl.when(pl.col(count) > 0).then(pl.col(total) / pl.col(count)),
    )


def _min(name: str, call: Call) -> Parts:
    return one_column(name, values_of(call).min(), pl.Expr.min)


def _max(name: str, call: Call) -> Parts:
    return one_column(name, values_of(call).max(), pl.Expr.max)


def _float_max(name: str, call: Call) -> Parts:
    """NaN is the greatest number."""
    return one_column(name, values_of(call).nan_max(), pl.Expr.nan_max)


def _variance(name: str, call: Call) -> Parts:
    """Count, mean and sum of squared distances, merged as Chan, Golub and LeVeque do."""
    n, mean, squares = f"{name}_n", f"{name}_mean", f"{name}_m2"
    values = values_of(call).cast(pl.Float64)
    rows = pl.col(n).sum()
    total = pl.when(rows > 0).then((pl.col(n) * pl.col(mean)).sum() / rows)  # 0 / 0 would stay NaN
    variance = pl.when(pl.col(n) > call.parameter).then(
        pl.col(squares) / (pl.col(n) - call.parameter)
    )
    return Parts(
        partial=(
            values.count().cast(pl.Int64).alias(n),
            values.mean().alias(mean),
            (values.var(ddof=0) * values.count()).alias(squares),
        ),
        merge=(
            pl.col(n).sum(),
            total.alias(mean),
            (pl.col(squares).sum() + (pl.col(n) * (pl.col(mean) - total).pow(2)).sum()).alias(
                squares
            ),
        ),
        finish=variance.sqrt() if call.function == "std" else variance,
    )


def _edge(name: str, call: Call) -> Parts:
    """First or last in stream order; rows that tie are told apart by the value."""
    keys = [f"{name}_{i}" for i in range(len(ORDER))]
    pick = pl.Expr.first if call.function == "first" else pl.Expr.last

    def picked(order: list[pl.Expr], value: pl.Expr) -> tuple[pl.Expr, ...]:
        by = [*order, value]
        return (
            *[pick(key.sort_by(by)).alias(k) for key, k in zip(order, keys, strict=True)],
            pick(value.sort_by(by)).alias(name),
        )

    assert call.argument is not None
    return Parts(
        partial=picked([pl.col(c) for c in ORDER], call.argument),
        merge=picked([pl.col(k) for k in keys], pl.col(name)),
        finish=pl.col(name),
    )


def _union(column: pl.Expr) -> pl.Expr:
    return column.explode(empty_as_null=False).unique()


def _distinct(name: str, call: Call) -> Parts:
    parts = one_column(name, values_of(call).unique(), _union)
    return Parts(partial=parts.partial, merge=parts.merge, finish=pl.col(name).list.len())


def _approx_distinct(name: str, call: Call) -> Parts:
    """HyperLogLog: the set of (register, rank) codes; merging is a union."""
    text = values_of(call).drop_nulls().cast(pl.String)
    digest = stable_hash(text)
    register = digest % REGISTERS
    rank = (digest // REGISTERS).bitwise_leading_zeros() - REGISTER_BITS + 1
    codes = register.cast(pl.UInt32) * 64 + rank.cast(pl.UInt32)
    return Parts(
        partial=(codes.unique().alias(name),),
        merge=(_union(pl.col(name)).alias(name),),
        finish=_estimate(pl.col(name)),
    )


def _estimate(codes: pl.Expr) -> pl.Expr:
    code = pl.element().sort()
    best = code.filter((code // 64) != (code // 64).shift(-1, fill_value=REGISTERS))
    weights = codes.list.eval(pl.lit(2.0).pow(-(best % 64).cast(pl.Float64)))
    used = weights.list.len()
    zeros = REGISTERS - used.cast(pl.Float64)
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS**2 / (weights.list.sum() + zeros)
    linear = REGISTERS * (REGISTERS / zeros).log()
    small = (raw <= 2.5 * REGISTERS) & (zeros > 0)
    return pl.when(small).then(linear).otherwise(raw).round()


def _approx_quantile(name: str, call: Call) -> Parts:
    """DDSketch: how many values fell into each logarithmic bin; merging adds up equal bins."""
    values = values_of(call).cast(pl.Float64).drop_nulls().drop_nans()
    level = (values.abs().log() / math.log(GAMMA)).ceil().clip(-(2**20), 2**20) + 2**21
    bins = pl.when(values == 0).then(0.0).otherwise(values.sign() * level).cast(pl.Int32)
    counted = bins.value_counts(name="n").struct.rename_fields(["bin", "n"])
    return Parts(
        partial=(counted.cast(pl.Struct({"bin": pl.Int32, "n": pl.Int64})).alias(name),),
        merge=(_add_up(pl.col(name)).alias(name),),
        finish=_bin_middle(_nearest_rank(pl.col(name), call.parameter)),
    )


def _add_up(sketches: pl.Expr) -> pl.Expr:
    """Return one sketch of several: each bin once, so that it never has more than there are bins.

    Bin and count are sorted as one number, several times as fast as a sort of the one by the other.
    """
    both = sketches.explode(empty_as_null=False).struct
    packed = (both.field("bin").cast(pl.Int64) * _COUNTS + both.field("n")).sort()
    bins = packed // _COUNTS
    last = (bins != bins.shift(-1)).fill_null(True)
    reached = (packed % _COUNTS).cum_sum().filter(last)
    count = reached - reached.shift(1, fill_value=0)
    return pl.struct(bins.filter(last).cast(pl.Int32).alias("bin"), count.alias("n"))


def _nearest_rank(sketch: pl.Expr, q: float) -> pl.Expr:
    bin_, n = pl.element().struct.field("bin"), pl.element().struct.field("n")
    reached = n.sort_by(bin_).cum_sum()
    wanted = (n.sum() - 1) * q + 1
    return sketch.list.eval(
        bin_.sort_by(bin_).filter(reached >= wanted.floor()).first()
    ).list.first()


def _bin_middle(bin_: pl.Expr) -> pl.Expr:
    size = pl.lit(GAMMA).pow((bin_.abs() - 2**21).cast(pl.Float64)) * 2 / (GAMMA + 1)
    return pl.when(bin_ == 0).then(0.0).otherwise(bin_.sign().cast(pl.Float64) * size)


_BUILDERS: dict[str, Callable[[str, Call], Parts]] = {
    "len": _len,
    "size": _size,
    "count": _count,
    "sum": _sum,
    "mean": _mean,
    "long sum": total_sum,
    "huge sum": total_sum,
    "long mean": total_mean,
    "huge mean": total_mean,
    "min": _min,
    "max": _max,
    "float max": _float_max,
    "var": _variance,
    "std": _variance,
    "first": _edge,
    "last": _edge,
    "distinct": _distinct,
    "approx_distinct": _approx_distinct,
    "approx_quantile": _approx_quantile,
}
