"""What kernels keep rows in: immutable stores whose changes cost what the change costs."""
