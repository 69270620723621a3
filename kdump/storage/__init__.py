"""Files and directories: where logs lie, how a file is read, what a partition consists of, one log file in byte order, its records."""
