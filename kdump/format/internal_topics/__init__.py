"""Parsing the keys and values of the records in Kafka's internal topics."""
