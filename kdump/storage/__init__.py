"""Files and directories: finding logs, reading files, the layout of a partition, one log file in byte order."""
