"""Durable state: segments, manifests, the cache of workers, compaction."""
