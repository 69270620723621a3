"""Keys and values of Kafka's internal topics."""
