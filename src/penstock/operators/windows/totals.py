"""Sums and averages whose partials are two numbers (`penstock.query.sums`)."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from penstock.operators.windows.parts import Parts, ShortWay, values_of
from penstock.query.aggregates import Call, result_type
from penstock.query.sums import Total, half_of, numbers, width


def total_sum(name: str, call: Call) -> Parts:
    """Return the parts of a sum."""
    return _parts(name, call, (), _total(name, call).sum(_tell(call)))


def total_mean(name: str, call: Call) -> Parts:
    """Return the parts of an average."""
    count = pl.col(f"{name}_n")
    counted = values_of(call).count().cast(pl.Int64).alias(f"{name}_n")
    mean = pl.when(count > 0).then(_total(name, call).mean(count, _tell(call)))
    return _parts(name, call, (counted,), mean)


def _parts(name: str, call: Call, more: tuple[pl.Expr, ...], finish: pl.Expr) -> Parts:
    """Return the parts; ``more`` are further partials, which are summed."""
    dtype = call.dtype or pl.Int64()
    low, high = f"{name}_low", f"{name}_high"
    total = Total.of(values_of(call), dtype)
    merged = Total(low=pl.col(low).sum(), high=pl.col(high).sum(), dtype=dtype)
    partial = (total.low.alias(low), total.halves.alias(high), *more)
    rest = tuple(pl.col(e.meta.output_name()).sum() for e in more)
    merge = (merged.low.alias(low), merged.halves.alias(high), *rest)
    parts = Parts(partial=partial, merge=merge, finish=finish)
    if width(dtype) != "long" or call.argument is None or not call.argument.meta.is_column():
        return parts
    column = call.argument.meta.output_name()
    once = (numbers(values_of(call), dtype).sum().alias(low), *more)
    after = ((pl.col(low) // half_of(dtype)).alias(high),)
    again = tuple(e for e in merge if e.meta.output_name() != high)
    return replace(
        parts,
        short_partial=ShortWay(column=column, sums=once, after=after),
        short_merge=ShortWay(column=low, high=high, sums=again, after=after),
    )


def _total(name: str, call: Call) -> Total:
    return Total(
        low=pl.col(f"{name}_low"), high=pl.col(f"{name}_high"), dtype=call.dtype or pl.Int64()
    )


def _tell(call: Call) -> str:
    return f"{call.text} does not fit {result_type(call)}"
