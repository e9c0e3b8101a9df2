"""How large a query begins: a sample run, and what follows from it."""
