"""Runs one command and measures it, from a process so small that it does not show in the command's peak memory.

`python -I -S launch.py OUT ERR COMMAND…` sends the command's output to the files OUT and ERR and prints one JSON line.
A child inherits the high-water mark of the process that spawned it, hence no imports beyond the bare interpreter's.
"""

import os
import sys
import time


def main(out: str, err: str, *command: str) -> int:
    """Print {"wall_s", "cpu_s", "peak_bytes", "status"} of `command`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, out, flags, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, err, flags, 0o600),
    ]
    start = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - start
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cpu = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    print(f'{{"wall_s": {wall:.6f}, "cpu_s": {cpu:.6f}, "peak_bytes": {peak}, "status": {code}}}')
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
