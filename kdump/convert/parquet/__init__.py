"""A folder of Parquet files with its manifest: written, continued, and put right after a run that was killed."""
