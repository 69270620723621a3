"""Several copies of one topic-partition as one log: what each has, where they differ, and what is taken from which."""
