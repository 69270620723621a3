"""What Kafka's own dump tool finds in the same files (`org.apache.kafka.tools.DumpLogSegments` of Kafka 4.3.1)."""
