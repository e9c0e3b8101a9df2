"""Steering: what a driver does around its epochs to change how the query runs."""
