"""kdump-spark(7): what a thousand brokers take. The figures are those of tests/bench/spark_scale.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

TEXTS: Final = (
    (
        "What follows is on paper. The costs of the driver were measured as processor time of one core, over "
        "partitions of seven segments; the tasks were simulated as the engine cuts, groups and sends them "
        "(tests/bench/spark_scale.py). No cluster of this size was at hand."
    ),
    (
        "The logs: 1,000 brokers with 10 TiB each, 2,000 partitions a broker with sizes as in a log-normal "
        "distribution, segments of 1 GiB; 500 cores. Where a core reads and checks 0.4 GB/s, all of them read 200 "
        "GB/s, which the file system has to deliver, and 15.3 hours is the least. Simulated: 16.2 hours, 97 % of the "
        "slots busy, 19 million tasks of Spark. With disks that give less, the time is that of the disks."
    ),
    (
        "Listing: the driver finds 60,000 to 80,000 files a second where the directory entries are in memory: 10 "
        "million segments with their companions in about 11 minutes. On a network file system a directory costs "
        "round trips; at 1 ms each, 2 million directories take 35 minutes. Both go on while tasks run, and the "
        "driver keeps no list: it lists as far ahead as three waves of tasks go."
    ),
    (
        "The driver: a partition that one worker verifies from beginning to end costs the driver 0.1 to 0.2 ms to "
        "send and 0.3 to 0.5 ms to take back. One in ranges costs it 0.7 ms for each segment, as producers, "
        "transactions and companions are followed over the whole partition there. In all that is about 2 hours of "
        "one core beside the 16 of the run. So, where the work is long, partitions up to 4 GiB are one task. Larger "
        "ones would cost the driver less and the cluster more: at 16 GiB, 63 % of the slots were busy, because a "
        "wave waits for its longest task."
    ),
    (
        "The scheduler of Spark has about 340 tasks a second to start. If it takes 2 ms for each, which was assumed "
        "and not measured, that is two thirds of a core of the driver's Java: the first limit that more cores would "
        "meet. Two commands, each over half of the brokers, have two drivers."
    ),
    (
        "Results: a partition without findings comes back as 270 bytes, half a GiB for all, about 1 MiB in a wave; "
        "3.6 kB travel out for a partition of seven segments. Damage makes results larger: of each code and file "
        "1,000 findings are kept. A wave has fewer tasks when its answers would take more than a quarter of "
        "spark.driver.maxResultSize, and a job whose answers were too large all the same is sent again in halves. "
        "The driver holds the answers of three waves at most. Numbers of kdump stat --deep are larger, up to some "
        "MiB for a range; ranges of a segment are joined on the worker before they travel."
    ),
    "A run that is interrupted begins again. With one command for each ten brokers, only theirs has to be repeated.",
)


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual import paragraphs

    yield from paragraphs("A THOUSAND BROKERS", TEXTS)
