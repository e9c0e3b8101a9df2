"""What runs on the driver: the epochs of a query, from a plan to a commit to outputs."""
