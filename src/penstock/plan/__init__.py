"""The values that travel: compiled queries, epoch plans, bucket maps, task reports."""
