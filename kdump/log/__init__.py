"""The log as Kafka documents it: append, flush, roll, read by offset and time, delete."""
