"""What a query tells of itself: typed events in its checkpoint."""
