"""Where work runs: in this process, or in several on this machine."""
