"""The bytes of batches field by field, for people who learn the format or report a bug."""
