"""Keys and values that were written with a schema: the wire format, and the values behind it as JSON values."""
