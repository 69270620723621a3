"""The salvage strategy: which valid batches of a damaged log are kept, and in what order."""
