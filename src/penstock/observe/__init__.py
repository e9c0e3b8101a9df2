"""What a query says about itself: typed events in its checkpoint."""
