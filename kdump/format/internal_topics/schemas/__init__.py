"""The tables of the messages in Kafka's internal topics. kdump.format.message_schema reads them."""
