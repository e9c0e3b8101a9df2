"""The first sizes of a query: taken from a sample run, and kept beside its state.

Law: a query that cannot be sampled starts with one instance of each subquery, and says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.config import PREFIX, Config
from penstock.base.errors import CheckpointError, ConfigError
from penstock.compiler import choose_heads, compile_query, explain, find_candidates
from penstock.control.elastic import Elastic
from penstock.control.sizing import SubqueryCost, share_instances, within
from penstock.driver.sizing.sample import ROWS, take_sample
from penstock.files.place import Place, place_of
from penstock.files.sealed import seal, unseal
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Sink
from penstock.sources.reader import SampleError
from penstock.state.manifests import ManifestLog

FILE = "sample.json"
KIND = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many instances each subquery gets, and what that comes from.

    Attributes:
        instances: The number for each subquery.
        rows: How many rows of the sample were counted; 0 if there was none.
        costs: What the subqueries cost.
        heads: The stateless operators with which subqueries begin, because they cost much.
        note: Why there was no sample, if so.
    """

    instances: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    costs: tuple[SubqueryCost, ...] = ()
    heads: tuple[int, ...] = ()
    note: str = ""

    def describe(self) -> str:
        """Return the costs and the sizes as lines.

        >>> print(Sizes(note="no sample could be taken: source calls has no file yet").describe())
        == Sizes ==
        no sample could be taken: source calls has no file yet
        """
        if self.note:
            return f"== Sizes ==\n{self.note}"
        whole = sum(cost.load for cost in self.costs) or 1.0
        lines = [f"== Sizes (from a sample of {self.rows:,} rows) =="]
        for cost in self.costs:
            count = self.instances.get(cost.subquery, 1)
            lines.append(
                f"subquery {cost.subquery} ({cost.name}): {cost.seconds * 1e6:.3f} us a row, "
                f"{cost.rows:.3g} rows for each that is read, {cost.load / whole:.0%} of the cost "
                f"-> {count} instance{'s' * (count != 1)}"
                + (" (no row came to it)" if not cost.rows else "")
                + (" (always one)" if cost.alone else "")
            )
        return "\n".join(lines)


def first_sizes(
    sinks: tuple[Sink, ...],
    *,
    total: int,
    strategy: str,
    buckets: int,
    elastic: Elastic | None = None,
    rows: int = ROWS,
) -> Sizes:
    """Return the sizes with which a query begins.

    Args:
        sinks: The query's sinks.
        total: How many instances there are to be in all.
        strategy: How the query is split.
        buckets: How many buckets it has; no subquery has more instances.
        elastic: The rules whose bounds are kept.
        rows: How many rows of each source to look at.
    """
    least, most = (elastic.min, elastic.max) if elastic else (1, total)
    try:
        heads = _sampled_heads(sinks, strategy, buckets, rows)
        sample = take_sample(sinks, strategy=strategy, buckets=buckets, rows=rows, heads=heads)
    except SampleError as error:
        numbers = range(len(compile_query(sinks, strategy=strategy, buckets=buckets).subqueries))
        note = f"{error}; so each subquery begins with {least} instance{'s' * (least != 1)}"
        return Sizes(instances=dict.fromkeys(numbers, min(least, buckets)), note=note)
    sizes = within(
        share_instances(sample.costs, max(total, 1)),
        sample.costs,
        min(least, buckets),
        min(most, buckets),
    )
    return Sizes(instances=sizes, rows=sample.rows, costs=sample.costs, heads=tuple(sorted(heads)))


def _sampled_heads(
    sinks: tuple[Sink, ...], strategy: str, buckets: int, rows: int
) -> frozenset[int]:
    """Return the operators that cost so much that subqueries shall begin with them.

    What each operator costs is known from the operator-cloud, where every operator is a subquery;
    that sample is taken only if there is a choice.
    """
    query = compile_query(sinks, strategy=strategy, buckets=buckets)
    if strategy == "operator-cloud" or not find_candidates(query):
        return frozenset()
    apart = compile_query(sinks, strategy="operator-cloud", buckets=buckets)
    sample = take_sample(sinks, strategy=apart.strategy, buckets=buckets, rows=rows)
    heads = {cost.subquery: apart.subqueries[cost.subquery].head for cost in sample.costs}
    seconds = {
        head: cost.seconds for cost in sample.costs if (head := heads[cost.subquery]) is not None
    }
    return choose_heads(query, seconds)


def heads_kept(checkpoint: str | Path, query: CompiledQuery) -> frozenset[int]:
    """Return the operators with which subqueries began when a query was sized.

    If the query has changed since, an operator that could not be chosen now is none of them.
    """
    sizes = read_first(place_of(checkpoint) / "penstock")
    return frozenset(sizes.heads if sizes else ()) & frozenset(find_candidates(query))


def choose_sizes(
    instances: int | Mapping[int, int] | str | None, settings: MutableMapping[str, str]
) -> int | Mapping[int, int] | str | None:
    """Return what the user says about sizes: in the call, else in the settings.

    Args:
        instances: What was given in the call.
        settings: Spark's settings; ``auto`` is taken out, since all others are numbers.

    Raises:
        ConfigError: It is a text other than ``auto``.
    """
    name = f"{PREFIX}instances"
    told = settings.get(name)
    if told == "auto":
        del settings[name]
    if isinstance(instances, str) and instances != "auto":
        raise ConfigError(name="instances", value=instances, allowed="a number or 'auto'")
    if instances is not None or told is None:
        return instances
    return "auto" if told == "auto" else Config.from_settings({name: told}).instances


def is_new(checkpoint: str | Path) -> bool:
    """Return whether no epoch of a checkpoint has been committed."""
    return not ManifestLog(place_of(checkpoint) / "penstock").epochs()


def sizes_to_begin_with(
    sinks: tuple[Sink, ...], config: Config, elastic: Elastic | None, slots: int, *, auto: bool
) -> Sizes | None:
    """Return the sizes of a new query for which no number was given; None for one each.

    Args:
        sinks: The query's sinks.
        config: How the query runs.
        elastic: The rules, if it is elastic: then it is sized too.
        slots: How many tasks can run at the same time.
        auto: Whether the user asks for it.
    """
    if not auto and (elastic is None or elastic.policy == "fixed"):
        return None
    return first_sizes(
        sinks,
        total=slots,
        strategy=config.strategy,
        buckets=config.buckets,
        elastic=elastic,
    )


def keep_first(root: Place, sizes: Sizes) -> None:
    """Keep what a query began with in its checkpoint, to be shown later."""
    with suppress(FileExistsError, OSError):
        (root / FILE).write_new(seal(KIND, sizes))


def read_first(root: Place) -> Sizes | None:
    """Return what a query began with, if it was sized from a sample."""
    with suppress(OSError, CheckpointError):
        return unseal(KIND, root / FILE, Sizes)
    return None


def explain_sized(
    sinks: tuple[Sink, ...], instances: str, *, strategy: str, mermaid: bool = False
) -> str:
    """Return how a query runs with an instance for each core of this machine, shared by cost."""
    choose_sizes(instances, {})
    buckets = Config().buckets
    sizes = first_sizes(sinks, total=os.cpu_count() or 1, strategy=strategy, buckets=buckets)
    query = compile_query(
        sinks, strategy=strategy, buckets=buckets, instances=sizes.instances, heads=sizes.heads
    )
    text = explain(query, mermaid=mermaid)
    return text if mermaid else f"{text}\n\n{sizes.describe()}"
