"""The records of topic-partitions in the order of their offsets, as Arrow's record batches."""
