"""The network query as a batch job: windows over each client's packets by their numbers."""

import polars as pl


def packet_sizes(packets: pl.LazyFrame, k: int = 100, every: int = 10) -> pl.DataFrame:
    """Return mean and deviation over the last `k` packets of a client, at every `every`-th."""
    size = pl.col("bytes").cast(pl.Float64)
    number = pl.int_range(pl.len()).over("client")
    return (
        packets.select("client", "ts", "bytes")
        .sort("client", maintain_order=True)
        .with_columns(
            number=number,
            window_start=pl.col("ts").shift(k - 1).over("client"),
            mean=size.rolling_mean(k).over("client"),
            deviation=size.rolling_std(k).over("client"),
        )
        .filter((pl.col("number") >= k - 1) & ((pl.col("number") - (k - 1)) % every == 0))
        .select("client", "window_start", pl.col("ts").alias("window_end"), "mean", "deviation")
        .collect()
    )
