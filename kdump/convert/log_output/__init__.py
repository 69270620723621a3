"""Topic-partitions as a new log directory in record batch v2."""
