"""The applications' queries as batch jobs in Polars and plain Python, written another way.

The law these modules keep: they use nothing of Penstock but its generators' schemas, so that equal
outputs say something.
"""
