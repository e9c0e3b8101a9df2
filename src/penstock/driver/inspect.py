"""Open state: what an operator keeps, as a frame, read from the checkpoint alone.

The pinned facts say what the columns of a segment mean, so neither the query nor its driver is
needed. Law: a frame is the state after one committed epoch, whole, also while the query runs; if
that is not to be had, an error says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.base.columns import ORDER
from penstock.base.errors import CheckpointError, PenstockError
from penstock.base.hashing import bucket_of
from penstock.driver.pinned import read_pinned_facts
from penstock.files.place import Place
from penstock.operators.kernel import UNTIL
from penstock.operators.keyed.dedup import KEPT, times_by_key
from penstock.operators.keyed.process_state import TIMERS, by_key
from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.functions import parts_of
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketSet
from penstock.query.aggregates import Call
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.segments import read_segment

_ATTEMPTS = 20


class StateError(PenstockError, KeyError):
    """A question about state that has no answer: no such operator, key or epoch."""

    def __str__(self) -> str:
        return str(self.fields["reason"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What the pinned facts say about a stateful operator.

    Attributes:
        name: Its name.
        by: Its key columns.
        panes: Its panes; None if it has none, as an ordered sink.
        shown_in: The zone in which the starts of panes are shown; None for UTC without a zone.
        merges: The function by which each partial is merged; None where rows are kept.
        buckets: How many buckets keys are hashed to.
    """

    name: str
    by: tuple[str, ...]
    panes: Panes | None
    shown_in: str | None
    merges: tuple[str, ...] | None
    buckets: int


def operators(root: Place) -> dict[str, Operator]:
    """Return the stateful operators of a checkpoint's query, by name.

    Raises:
        CheckpointError: There is no checkpoint, or its pins are damaged.
    """
    facts = read_pinned_facts(root)
    names = [fact.removesuffix(" input") for fact in facts if fact.endswith(" input")]
    return {name: _operator(name, facts) for name in sorted(names)}


def _operator(name: str, facts: Mapping[str, Any]) -> Operator:
    merges = facts.get(f"{name} merges")
    return Operator(
        name=name,
        by=tuple(facts.get(f"{name} keys", ())),
        panes=_panes(name, facts),
        shown_in=facts.get(f"{name} shown_in"),
        merges=None if merges is None else tuple(merges),
        buckets=facts["buckets"],
    )


def _panes(name: str, facts: Mapping[str, Any]) -> Panes | None:
    """Return the panes of an operator; how many make a window, its state does not say."""
    width, offset = facts.get(f"{name} pane_us"), facts.get(f"{name} offset_us", 0)
    if width is None:
        return None
    zone = facts.get(f"{name} zone")
    return Panes(width_us=width, per_window=1, step=1, offset_us=offset, zone=zone)


def read_state(
    root: Place, operator: str | None = None, key: Any = None, epoch: int | None = None
) -> pl.DataFrame:
    """Return the state of an operator after an epoch.

    For an aggregate: a row per group and pane, with the pane's start and the partials (or the kept
    rows). For a top with a window: its first rows in each pane, with the pane's start. For an
    ordered sink: the rows that wait. For a process: a row per key with its state, its timers as
    ``__timers``, and as ``__waiting`` how many of its rows wait. For a dedup: a row per key with
    the time of the last row that was kept. If files of the newest epoch are retired while they are
    read, the epoch that is then the newest is read.

    Args:
        root: Penstock's folder in the checkpoint.
        operator: The operator's name; may be left out if there is one.
        key: The key to look at: a value, a tuple or a dict by column; everything unless given.
            A null key is given as a dict.
        epoch: The epoch; the newest unless given.

    Raises:
        StateError: There is no such operator, key column or epoch.
        CheckpointError: A file is damaged, or was retired while it was read.
    """
    found = _choose_operator(operators(root), operator)
    wanted = None if key is None else _key_of(found, key)
    log = ManifestLog(root)
    if epoch is not None:
        return _read_past(root, log, found, wanted, epoch)
    return _read_newest(root, log, found, wanted)


def _choose_operator(known: Mapping[str, Operator], name: str | None) -> Operator:
    names = ", ".join(known) or "none"
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        raise StateError(reason=f"name an operator; stateful operators: {names}")
    if name not in known:
        raise StateError(reason=f"no stateful operator {name!r}; stateful operators: {names}")
    return known[name]


def _key_of(operator: Operator, key: Any) -> dict[str, Any]:
    by = operator.by
    if isinstance(key, Mapping):
        found = dict(key)
    else:
        values = key if isinstance(key, tuple) else (key,)
        found = dict(zip(by, values, strict=False)) if len(values) == len(by) else {}
    if set(found) != set(by) or not by:
        columns = ", ".join(by) or "none"
        raise StateError(
            reason=f"key={key!r} does not fit {operator.name}; its key columns: {columns}"
        )
    return {name: found[name] for name in by}


def _read_newest(
    root: Place, log: ManifestLog, operator: Operator, key: Mapping[str, Any] | None
) -> pl.DataFrame:
    for attempt in range(_ATTEMPTS):
        manifest = log.newest()
        if manifest is None:
            raise StateError(reason=f"{root}: no epoch has been committed yet")
        try:
            return _read(root, operator, key, manifest)
        except CheckpointError:
            retired = max(log.epochs(), default=-1) != manifest.epoch
            if not retired or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _read_past(
    root: Place, log: ManifestLog, operator: Operator, key: Mapping[str, Any] | None, epoch: int
) -> pl.DataFrame:
    manifest = log.read(epoch)
    if manifest is None:
        kept = log.epochs()
        span = f"epochs {kept[0]} to {kept[-1]} can be read" if kept else "no epoch is kept"
        raise StateError(
            reason=f"the state of epoch {epoch} is not kept; {span} "
            "(spark.penstock.retainEpochs, spark.penstock.retainSeconds)"
        )
    try:
        return _read(root, operator, key, manifest)
    except CheckpointError as error:
        if log.place(epoch).exists():
            raise
        reason = (
            f"epoch {epoch} was retired while it was read; "
            "a larger spark.penstock.retainSeconds keeps it for longer"
        )
        raise CheckpointError(path=str(log.place(epoch)), reason=reason) from error


def _read(
    root: Place, operator: Operator, key: Mapping[str, Any] | None, manifest: Manifest
) -> pl.DataFrame:
    folder = root / "state" / operator.name
    kept = manifest.kept(operator.name)
    if not kept:
        return pl.DataFrame()
    buckets = BucketSet(((0, operator.buckets),))
    one = None
    if key is not None:
        schema = read_segment(folder, kept[0].ref, BucketSet()).schema
        one = _key_row(key, schema)
        buckets = BucketSet.of(_bucket(operator, one, schema))
    rows = pl.concat(
        _before(read_segment(folder, part.ref, part.buckets & buckets), operator, part.before_us)
        .filter(pl.col(UNTIL) > part.mark)
        .drop(UNTIL)
        for part in kept
    )
    if one is not None:
        rows = rows.join(one, on=operator.by, how="semi", nulls_equal=True)
    return _show_state(operator, rows)


def _before(delta: pl.DataFrame, operator: Operator, end_us: int | None) -> pl.DataFrame:
    """Return the rows before a time; those of a tail that come later are the new owner's, too."""
    if end_us is None or operator.panes is None:
        return delta
    return delta.filter(operator.panes.start_of(pl.col(PANE)) < end_us)


def _key_row(key: Mapping[str, Any], schema: pl.Schema) -> pl.DataFrame:
    """Return a frame of the one key, in the types that the state has."""
    columns = {}
    for name, value in key.items():
        plain = 0.0 if isinstance(value, float) and value == 0 else value  # -0.0 is the same key
        try:
            columns[name] = _cast_value(name, plain, schema[name])
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            reason = f"key {name}={value!r} is no {schema[name]}: {error}".splitlines()[0]
            raise StateError(reason=reason) from error
    return pl.DataFrame(columns)


def _cast_value(name: str, value: Any, dtype: pl.DataType) -> pl.Series:
    if isinstance(value, str) and isinstance(dtype, pl.Datetime):
        return pl.Series(name, [value]).str.to_datetime(time_unit=dtype.time_unit).cast(dtype)
    if isinstance(value, str) and dtype == pl.Date:
        return pl.Series(name, [value]).str.to_date()
    if isinstance(value, str) and dtype == pl.Boolean:
        return pl.Series(name, [{"true": True, "false": False}[value.lower()]])
    if isinstance(value, str):
        return pl.Series(name, [value]).cast(dtype)
    return pl.Series(name, [value], dtype=dtype)


def _bucket(operator: Operator, key: pl.DataFrame, schema: pl.Schema) -> list[int]:
    buckets = bucket_of(operator.by, operator.buckets, schema)
    found: list[int] = key.select(buckets).to_series().to_list()
    return found


def _show_state(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    """Return state rows as a user sees them: merged, with the start of the pane."""
    by = list(operator.by)
    if TIMERS in rows.columns:
        return by_key(rows, by)
    if KEPT in rows.columns:
        return times_by_key(rows, by)
    if operator.panes is not None:
        merged = rows if operator.merges is None else _merge_state(operator.merges, rows, by)
        begins = operator.panes.start_of(pl.col(PANE))
        start = begins.cast(pl.Datetime("us", operator.shown_in)).alias("pane_start")
        rows = merged.select(*by, start, pl.exclude(*by, PANE))
        rows = rows.sort("pane_start", maintain_order=True)
    visible = rows.drop([name for name in ORDER if name in rows.columns])
    return visible.rename(lambda name: name.removeprefix("__"))


def _merge_state(merges: Sequence[str], rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return one row per key and pane; which function merges a partial is all that is needed."""
    expressions: list[pl.Expr] = []
    for number, function in enumerate(merges):
        call = (
            Call(function="sum", argument=pl.lit(1))
            if function == "constant"
            else Call(function=function, argument=pl.col(PANE))
        )
        expressions += parts_of(number, call).merge
    grouped = rows.group_by(*by, PANE, maintain_order=True).agg(expressions)
    return grouped.select(rows.columns)
