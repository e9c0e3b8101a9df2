# The interpreter that .venv is made from.
PYTHON ?= python3
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup run quick test check bench differ faults faults-short storm soak clean

# help: print this list
help:
	@sed -n 's/^# \([a-z-]*\): \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST))

# setup: make .venv and find Java; installs anew only when pyproject.toml or constraints.txt changed
setup:
	@scripts/setup.sh

# run: run the demo
run:
	@scripts/setup.sh run
	@.venv/bin/penstock demo

# quick: lint, and the tests without Spark that take no long time, in under three minutes
quick: setup
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --check --quiet
	@POLARS_MAX_THREADS=1 PENSTOCK_EXAMPLES=3 .venv/bin/python -m pytest -n 2 \
	    -m "not spark and not slow" tests/unit tests/property tests/golden src/penstock

# test: run all tests and doctests
test: setup
	@.venv/bin/python -m pytest -n 2

# check: lint, formatting, types, the order of imports
check: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/python -m pytest tests/unit/test_layers.py

# bench: run the call-record benchmark
bench: setup
	@.venv/bin/penstock bench cdr

# differ: hold 20 000 random statements of SQL against DuckDB
differ: setup
	@.venv/bin/python -m bench.differ --statements 20000 --seed 1

# faults: run the whole fault programme and print its table
faults: setup
	@.venv/bin/python -m faults

# faults-short: run the short form of the fault programme, about five minutes
faults-short: setup
	@.venv/bin/python -m faults --short

# storm: 1 000 moves, rescales and executors that come and go, 100 kills among them
storm: setup
	@.venv/bin/python -m faults.storm --operations 1000 --kills 100 --seed 1

# soak: run a query at a steady rate for half an hour and see that nothing grows
soak: setup
	@.venv/bin/python -m faults.soak --minutes 30

# clean: remove .venv and all that the other targets leave behind
clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	rm -rf spark-warehouse metastore_db derby.log
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
