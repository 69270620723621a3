"""Tables about logs: their batches, segments, producers and transactions, and what verify finds in them."""
