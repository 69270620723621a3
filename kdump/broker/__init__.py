"""What Kafka 4.3 does with a topic-partition directory when it starts, in Kafka's class names."""
