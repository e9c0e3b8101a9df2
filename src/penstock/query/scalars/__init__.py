"""What SQL text means, value by value: the expressions of SQL become typed Polars expressions.

Law: a text means the same in SQL and in Python, whatever Polars' own SQL would make of it. Here is
the meaning of what Polars reads in another way; the rest is given to `pl.sql_expr` part by part.
"""
