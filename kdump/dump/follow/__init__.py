"""Following logs that a broker writes: each whole batch once, and what becomes of those that were shown."""
