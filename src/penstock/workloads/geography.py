"""Distances on the earth's surface, and the speed of who is seen in two places."""

import polars as pl

import penstock as ps

EARTH_KM = 6371.0088
"""The mean radius."""


def great_circle_km(lat: str, lon: str, other_lat: str, other_lon: str) -> pl.Expr:
    """Return the orthodromic distance of two places in km, by the haversine.

    >>> lisbon, madrid = {"a": 38.7223, "b": -9.1393}, {"c": 40.4168, "d": -3.7038}
    >>> both = pl.DataFrame([lisbon | madrid])
    >>> round(both.select(great_circle_km("a", "b", "c", "d")).item())
    502
    """
    phi, other_phi = pl.col(lat).radians(), pl.col(other_lat).radians()
    half_phi = (other_phi - phi) / 2
    half_lambda = (pl.col(other_lon) - pl.col(lon)).radians() / 2
    sine, across = half_phi.sin(), half_lambda.sin()
    haversine = sine * sine + phi.cos() * other_phi.cos() * across * across
    # Rounding may lift the haversine of antipodes above 1, whose arc sine is not a number.
    return 2 * EARTH_KM * haversine.clip(0.0, 1.0).sqrt().arcsin()


class Speed(ps.BatchProcess):
    """How fast a phone must have travelled from the place before to this one.

    Rows need `phone`, `lat`, `lon` and `ts`; a phone's first row gives no result. Two places at one
    time are an infinite speed, one place at one time is none.
    """

    state = {"at": pl.Datetime("us"), "from_lat": pl.Float64, "from_lon": pl.Float64}  # noqa: RUF012  # read only
    output = {"ts": pl.Datetime("us"), "km": pl.Float64, "kmh": pl.Float64}  # noqa: RUF012

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Compare each row with the one before it of the same phone, or with the state."""
        phone, row = pl.col("phone"), pl.col("__row")
        first = (row == 0) | phone.ne_missing(phone.shift(1))
        before = {"at": "ts", "from_lat": "lat", "from_lon": "lon"}
        joined = rows.join(
            state, on="phone", how="left", nulls_equal=True, maintain_order="left"
        ).with_columns(
            pl.when(first).then(kept).otherwise(pl.col(own).shift(1)).alias(kept)
            for kept, own in before.items()
        )
        last = (row == rows.height - 1) | phone.ne_missing(phone.shift(-1))
        left = rows.filter(last).select("phone", **before)
        return self._speeds(joined), left

    def _speeds(self, joined: pl.DataFrame) -> pl.DataFrame:
        hours = (pl.col("ts") - pl.col("at")).dt.total_microseconds() / 3.6e9
        return (
            joined.lazy()
            .filter(pl.col("at").is_not_null())
            .with_columns(km=great_circle_km("from_lat", "from_lon", "lat", "lon"))
            .with_columns(kmh=pl.when(pl.col("km") > 0).then(pl.col("km") / hours).otherwise(0.0))
            .select("phone", *self.output, "__row")
            .collect()
        )
