"""Where results go: staged by tasks, published by the driver once the epoch is committed."""
