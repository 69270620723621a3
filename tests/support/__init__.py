"""What the tests share: makers of logs and directories, named damages, and the plain decoders that the package is held
against."""
