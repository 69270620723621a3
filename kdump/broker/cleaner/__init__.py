"""What a running broker deletes and compacts, by the rules of Kafka 4.3: retention and the log cleaner."""
