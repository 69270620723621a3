"""What is inside the keys and values of records."""
