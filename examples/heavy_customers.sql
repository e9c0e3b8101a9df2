-- Heavy customers: callers whose mean call over an hour is longer than ten minutes.
--
-- Try it without data:    penstock explain examples/heavy_customers.sql
-- Run it on a folder:     penstock run examples/heavy_customers.sql --checkpoint checkpoint

CREATE TABLE calls (
  src VARCHAR, dst VARCHAR, start TIMESTAMP, "end" TIMESTAMP, ts TIMESTAMP,
  district INTEGER, lat DOUBLE, lon DOUBLE
) WITH (format = 'parquet', path = 'calls', time = 'ts', delay = '5 seconds');

CREATE TABLE heavy WITH (format = 'parquet', path = 'heavy', ordered = true);

INSERT INTO heavy
SELECT src, window_start, window_end, count(*) AS calls, avg("end" - start) AS mean
FROM calls
GROUP BY src, HOP(ts, '1 hour', '1 minute')
HAVING mean > INTERVAL '10 minutes';
