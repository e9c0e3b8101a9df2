"""What stands in a statement beside columns: literals of each kind.

Kinds that begin with ``#`` are never columns, because Penstock or DuckDB wants them written out.
"""

from __future__ import annotations

LITERALS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "CAST(-1 AS INT)", "7", "100", "1000", "CAST(NULL AS INT)",
            "CAST(3 AS SMALLINT)"),
    "bits": ("CAST(-1 AS INT)", "CAST(3 AS SMALLINT)"),
    "bare": ("2.5e0", "-1.5e3"),
    "count": ("0", "1", "2", "-1", "3", "5"),
    "float": ("0e0", "1e0", "2.5e0", "-1.5e3", "1e300", "CAST(NULL AS DOUBLE PRECISION)"),
    "decimal": ("0.5", "1.25", "-2.5", "100.00", "0.001", "CAST(NULL AS DECIMAL(10, 2))"),
    "cents": ("1.25", "-2.50"),
    "text": ("'a'", "''", "'b'", "'A'", "'it''s'", "'é'", "'a%c'", "CAST(NULL AS VARCHAR)"),
    "bool": ("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"),
    "pattern": ("p",),
    "numeral": ("m",),
    "date": ("DATE '2024-02-29'", "DATE '1969-12-31'", "CAST(NULL AS DATE)"),
    "time": ("TIMESTAMP '2024-02-29 13:45:06'", "TIMESTAMP '1970-01-01 00:00:00.5'"),
    "zoned": ("tz",),
    "instant": ("TIMESTAMPTZ '2024-11-03 05:30:00Z'", "TIMESTAMPTZ '2024-03-10 01:59:59+02'"),
    "span": ("INTERVAL '1 hour'", "INTERVAL '36 hours'", "INTERVAL '1 second'"),
    "#digits": ("0", "1", "2", "3", "-1", "-2"),
    "#exponent": ("0", "1", "2", "3", "-1"),
    "#length": ("0", "1", "2", "5"),
    "#start": ("1", "2", "3"),
    "#width": ("0", "1", "3", "6"),
    "#fill": ("'x'", "'*'"),
    "#characters": ("'a'", "'ab'", "' '", "'-'"),
    "#separator": ("'-'", "' '", "'b'", "', '"),
    "#place": ("1", "2", "3", "-1", "-2", "9"),
    "#regex": ("'[a-c]+'", "'^a'", "'b$'", "'\\s'", "'.'"),
    "#like": ("'a%'", "'%c'", "'a\\%c'", "'a\\_c'", "'_'", "'%b%'", "''", "'__'", "'%a%c%'",
              "'A%'"),
    "#marked": ("'a!%c'", "'a!_c'", "'%!%'", "'a%'"),
    "#interval": ("INTERVAL '1 day'", "INTERVAL '1 month'", "INTERVAL '90 minutes'",
                  "INTERVAL '1 year'", "INTERVAL '2 weeks'", "INTERVAL '1' HOUR"),
    "#unit": ("'year'", "'quarter'", "'month'", "'week'", "'day'", "'hour'", "'minute'",
              "'second'"),
    "#zone": ("'UTC'", "'America/New_York'", "'Europe/Berlin'", "'Asia/Kolkata'"),
    "#year": ("2024", "2023", "1969"),
    "#month": ("1", "2", "12", "3"),
    "#day": ("1", "28", "29", "31"),
    "#format": ("'%Y-%m-%d %H:%M:%S'", "'%H:%M'", "'%j'", "'%d.%m.%y'"),
}  # fmt: skip
