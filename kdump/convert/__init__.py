"""Convert: records as columns. The room of Arrow: no other room but Spark's imports it."""
