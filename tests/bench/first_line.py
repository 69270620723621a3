"""Runs a command until its first line of output: `python -m tests.bench.first_line COMMAND…`."""

import subprocess
import sys

if __name__ == "__main__":
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        child.kill()
    sys.exit(0 if said else 1)
