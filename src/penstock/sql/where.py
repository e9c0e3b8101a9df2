"""What WHERE and USING say about a join, moved to its ON.

Law: for inner joins that makes no difference: a pair is in the result if both ON and WHERE are true
of it. It is done where ON alone is not enough, and not before a RIGHT or FULL JOIN, whose rows
without a partner only WHERE would drop.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.expressions import unknown_column
from penstock.sql.bands import tightest
from penstock.sql.conditions import Conditions, Sides, conjuncts, take_apart_on
from penstock.sql.fields import split_fields
from penstock.sql.places import Mistakes
from penstock.sql.scope import Names, Scope, Still


def is_inner(join: exp.Join) -> bool:
    """Return whether a join drops the rows without a partner."""
    return not join.side and not join.method and join.kind in ("", "INNER", "CROSS")


def use_as_on(join: exp.Join, left: Names, right: Names, mistakes: Mistakes) -> None:
    """Change USING to ON, in place."""
    for name in join.args.get("using") or ():
        both = [_find_owner(name, side, mistakes) for side in (left, right)]
        if None not in both:
            _also(join, exp.EQ(this=both[0], expression=both[1]))


def _find_owner(name: exp.Expr, side: Names, mistakes: Mistakes) -> exp.Expr | None:
    owner = next((t for t in side.tables if name.name in t.columns), None)
    if owner is not None:
        return exp.Column(this=name.copy(), table=exp.to_identifier(owner.alias, quoted=True))
    known: dict[str, pl.DataType] = {n: pl.Null() for t in side.tables for n in t.columns}
    mistakes.add(f"USING: {unknown_column(name.name, known)}", name)
    return None


def take_from_where(
    select: exp.Select, join: exp.Join, left: Scope, right: Scope | Still, mistakes: Mistakes
) -> None:
    """Move the keys and time bands that a join lacks from WHERE to its ON, in place."""
    where = select.args.get("where")
    joins = select.args.get("joins") or []
    later = joins[[id(j) for j in joins].index(id(join)) + 1 :]
    if where is None or not is_inner(join) or any(j.side in ("RIGHT", "FULL") for j in later):
        return
    quiet = Mistakes(text=mistakes.text)
    on = join.args["on"].copy() if join.args.get("on") else None
    if on is not None:
        split_fields(on, (*left.tables, *right.tables))
    if _is_enough(take_apart_on(on, left, right, quiet), right):
        return
    kept = []
    for condition in conjuncts(where.this):
        if _joins(condition, left, right, only_two=len(joins) == 1, quiet=quiet):
            _also(join, condition)
        else:
            kept.append(condition)
    if len(kept) < len(list(conjuncts(where.this))):
        join.set("kind", "INNER")
        where.set("this", exp.and_(*kept, copy=False)) if kept else select.set("where", None)


def _also(join: exp.Join, condition: exp.Expr) -> None:
    on = join.args.get("on")
    condition = condition.copy()
    join.set("on", condition if on is None else exp.and_(on, condition, copy=False))


def _is_enough(conditions: Conditions | None, right: Scope | Still) -> bool:
    if conditions is None:
        return True  # it is wrong, and that will be said
    if isinstance(right, Still):
        return bool(conditions.keys)
    return tightest(band for band, _ in conditions.bands) is not None


def _joins(
    condition: exp.Expr, left: Scope, right: Scope | Still, *, only_two: bool, quiet: Mistakes
) -> bool:
    """Return whether a condition of WHERE is a key or a time band of two sides."""
    condition = condition.copy()
    split_fields(condition, (*left.tables, *right.tables))
    if not only_two and not all(column.table for column in condition.find_all(exp.Column)):
        return False
    sides = Sides(left, right, quiet)
    return sides.is_sound(condition) and bool(sides.key(condition) or sides.band(condition))
