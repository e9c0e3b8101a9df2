"""What those who know PySpark or Polars may write on a stream, and what it is called here."""

from penstock.query.windows import Window, tumbling

_AGGREGATE = "aggregate(by=…, window=ps.tumbling('1 minute'), n='count(*)')"
_ADD = "map(name='expression'), which adds or replaces columns"
_KEEP = "select('a', 'b'), which keeps the named columns"
_SEE = "write_memory() and query.table(), or write_console(): a stream has no end"
_WRITE = "write_parquet(folder).start(spark, checkpoint=…)"
OTHER_NAMES = {
    **dict.fromkeys(("groupBy", "groupby", "group_by", "agg", "count"), _AGGREGATE),
    **dict.fromkeys(("withColumn", "withColumns", "with_columns", "selectExpr"), _ADD),
    **dict.fromkeys(("withColumnRenamed", "rename"), "select(new='old')"),
    **dict.fromkeys(("drop",), _KEEP),
    **dict.fromkeys(("where",), "filter('condition')"),
    **dict.fromkeys(("dropDuplicates", "distinct", "unique"), "dedup(by=…, within=…)"),
    **dict.fromkeys(("withWatermark",), "the delay of the source: read_parquet(…, delay='5 s')"),
    **dict.fromkeys(("orderBy", "sort"), "write_parquet(folder, ordered=True) or top(k, 'column')"),
    **dict.fromkeys(("limit", "head"), "top(k, 'column', window=…)"),
    **dict.fromkeys(("repartition", "coalesce"), "spread(), which begins a subquery of its own"),
    **dict.fromkeys(("unionAll", "unionByName", "concat"), "union(other)"),
    **dict.fromkeys(("show", "collect", "toPandas", "to_pandas"), _SEE),
    **dict.fromkeys(("write", "writeStream", "start"), _WRITE),
    **dict.fromkeys(("columns", "dtypes", "printSchema"), "schema"),
}
"""By the name that somebody may try."""


def no_attribute(name: str) -> str:
    """Return that a stream has no such attribute, and what it has instead, if that is known.

    >>> no_attribute("where")
    "a stream has no 'where'; use filter('condition')"
    >>> no_attribute("wher")
    "a stream has no 'wher'"
    """
    instead = OTHER_NAMES.get(name)
    return f"a stream has no {name!r}" + (f"; use {instead}" if instead else "")


def or_no_window(window: object) -> tuple[Window, list[str]]:
    """Return a window, or any one and what is wrong if it is none.

    >>> or_no_window("1 hour")[1]
    ["window='1 hour' is no window; for example ps.tumbling('1 minute')"]
    """
    if isinstance(window, Window):
        return window, []
    return tumbling("1 minute"), [f"{window=!r} is no window; for example ps.tumbling('1 minute')"]
