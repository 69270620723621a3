"""The process of the kdump command, also as python -m kdump."""

import gc

ALLOCATIONS = 50_000
"""Objects between two runs of the cyclic garbage collector: more than the imports of a command allocate."""


def main() -> None:
    """Run the command line and end the process with its exit status."""
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])
    import kdump.cli  # Click alone allocates enough for runs of the collector

    kdump.cli.main()


if __name__ == "__main__":
    main()
