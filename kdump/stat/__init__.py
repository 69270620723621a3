"""Statistics of a log from its files: what is in it, and what takes its space."""
