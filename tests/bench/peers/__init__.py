"""Other readers of the same bytes."""
