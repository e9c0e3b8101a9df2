"""Time bands: the conditions of a JOIN that bound how far apart in time its rows are.

Law: a band allows exactly the differences (time of the left minus time of the right) that its
conditions allow; every condition here is linear in those two times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlglot import exp

from penstock.sql.scalars import call_name
from penstock.sql.times import duration_us

Moment = tuple[str, str]
"""A time column: its side, ``left`` or ``right``, and its name in that side's stream."""
FindMoment = Callable[[exp.Column], Moment | None]
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A sum of time columns, each with a factor, and of a constant in microseconds."""

    factors: dict[Moment, int]
    constant_us: int = 0

    def minus(self, other: Linear) -> Linear:
        """Return the difference of two sums."""
        factors = dict(self.factors)
        for moment, factor in other.factors.items():
            factors[moment] = factors.get(moment, 0) - factor
        return Linear(
            factors={m: f for m, f in factors.items() if f},
            constant_us=self.constant_us - other.constant_us,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Bounds, in whole microseconds and inclusive, of the left time minus the right time."""

    left: str
    right: str
    low_us: int | None = None
    high_us: int | None = None

    def narrow(self, other: Band) -> Band:
        """Return the band that both allow."""
        lows = [b.low_us for b in (self, other) if b.low_us is not None]
        highs = [b.high_us for b in (self, other) if b.high_us is not None]
        return Band(
            left=self.left,
            right=self.right,
            low_us=max(lows, default=None),
            high_us=min(highs, default=None),
        )

    @property
    def reach_us(self) -> int | None:
        """The greatest distance that the band allows; None if it is open at an end."""
        if self.low_us is None or self.high_us is None:
            return None
        return max(-self.low_us, self.high_us)

    @property
    def symmetric(self) -> bool:
        """Whether the band is exactly the distances up to its reach."""
        return self.low_us is not None and self.high_us == -self.low_us


def find_band(condition: exp.Expr, moment: FindMoment) -> Band | None:
    """Return the band of one condition, or None if it is none.

    Raises:
        ValueError: A duration in it cannot be read.
    """
    if isinstance(condition, exp.Paren):
        return find_band(condition.this, moment)
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        low = find_band(
            exp.GTE(this=condition.this.copy(), expression=condition.args["low"].copy()), moment
        )
        high = find_band(
            exp.LTE(this=condition.this.copy(), expression=condition.args["high"].copy()), moment
        )
        return low.narrow(high) if low and high and _is_same(low, high) else None
    if type(condition) not in _FLIPPED:
        return None
    sides = (condition.this, condition.expression)
    for distance, limit, operator in (
        (sides[0], sides[1], type(condition)),
        (sides[1], sides[0], _FLIPPED[type(condition)]),
    ):
        if call_name(distance) == "abs":
            return _distance(distance, limit, operator, moment)
    first, second = (_linear(side, moment) for side in sides)
    return _bounded(first.minus(second), type(condition)) if first and second else None


def _is_same(one: Band, other: Band) -> bool:
    return (one.left, one.right) == (other.left, other.right)


def _distance(
    distance: exp.Expr,
    limit: exp.Expr,
    operator: type[exp.Expr],
    moment: FindMoment,
) -> Band | None:
    inside, bound = _linear(distance.expressions[0], moment), _linear(limit, moment)
    if inside is None or bound is None or bound.factors or operator not in (exp.LT, exp.LTE):
        return None
    over = _bounded(inside.minus(bound), operator)
    under = _bounded(Linear(factors={}).minus(inside).minus(bound), operator)
    return over.narrow(under) if over and under else None


def _linear(node: exp.Expr, moment: FindMoment) -> Linear | None:
    if isinstance(node, exp.Paren):
        return _linear(node.this, moment)
    if isinstance(node, exp.Column):
        found = moment(node)
        return None if found is None else Linear(factors={found: 1})
    if isinstance(node, exp.Add | exp.Sub):
        one, other = _linear(node.this, moment), _linear(node.expression, moment)
        if one is None or other is None:
            return None
        nothing = Linear(factors={})
        return one.minus(other if isinstance(node, exp.Sub) else nothing.minus(other))
    if isinstance(node, exp.Interval | exp.Cast):
        span = duration_us(node)
        return None if span is None else Linear(factors={}, constant_us=span)
    return None


def _bounded(sum_: Linear, operator: type[exp.Expr]) -> Band | None:
    """Return the band of ``sum operator 0``."""
    moments = {side: (name, factor) for (side, name), factor in sum_.factors.items()}
    if len(sum_.factors) != 2 or set(moments) != {"left", "right"}:
        return None
    (left, factor), (right, other) = moments["left"], moments["right"]
    if factor * other != -1:
        return None
    if factor == -1:
        operator = _FLIPPED[operator]
    limit = -sum_.constant_us * factor
    strict = int(operator in (exp.LT, exp.GT))
    low = limit + strict if operator in (exp.GT, exp.GTE, exp.EQ) else None
    high = limit - strict if operator in (exp.LT, exp.LTE, exp.EQ) else None
    return Band(left=left, right=right, low_us=low, high_us=high)


def tightest(bands: Iterable[Band]) -> Band | None:
    """Return the band, of those over the same two columns taken together, with the least reach."""
    joined: dict[tuple[str, str], Band] = {}
    for band in bands:
        key = (band.left, band.right)
        joined[key] = joined[key].narrow(band) if key in joined else band
    closed = [b for b in joined.values() if b.reach_us is not None]
    return min(closed, key=lambda b: b.reach_us or 0, default=None)
