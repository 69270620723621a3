"""The words of the manual about finding records with kdump dump."""

from __future__ import annotations

PATTERNS = {
    "TEXT, exact:TEXT": "These bytes, as UTF-8. TEXT alone is so unless it has one of the forms below.",
    "TEXT*, prefix:TEXT": "Bytes that begin with these. * alone is everything but null. A * before the end is "
    "refused, with the regular expression that finds what the glob would.",
    "/REGEX/, re:REGEX": (
        "Bytes in which the regular expression is found, as Python's re writes them. It works on bytes: a dot is"
        " one byte, and classes of letters and (?i) know ASCII alone. It searches the first 64 KiB of a key or value."
    ),
    "hex:DIGITS, base64:TEXT": "These bytes.",
    "null": "No key, or no value. Use exact:null for the four letters.",
}
FINDING = (
    (
        "--key, --value, --header, --tombstones, --control, --producer, --transactional-id, --time, --offset, --topic "
        "and --partition choose records. A record has to match all options that are given; of one that is given "
        "several times, it has to match one. A batch that holds no such record is left out, and so is a file of which "
        "nothing is shown. What is damaged is shown as always, because its records may match; the exit status is that "
        "of the whole dump. Text, terminal and JSON end with how many of how many records match."
    ),
    "Each PATTERN is one of these:",
)
COST = (
    (
        "Keys, values and headers are compared where they lie, before a record is shown: a search takes about as long "
        "as kdump verify --deep, and a few times as long with a regular expression. --producer, --control and "
        "--offset, and the first time of --time, pass over whole batches by their headers without decompressing them. "
        "Timestamps of a log can go back, so that the second time of --time ends no scan."
    ),
    (
        "--last, a negative side of --offset and end in --time count back from the end of each log: its log end "
        "offset, and its newest timestamp, of the files that are given. --last reads the segments from the last one "
        "backwards until it has enough; of those before them it reports no damage. Control records, which not all "
        "formats show, count with --control alone."
    ),
    (
        "--transactional-id looks up producer ids in the partitions of __transaction_state in the same log directory. "
        "That topic is compacted: producer ids that a transactional id had long ago may be gone from it. Where none is "
        "known, or the partition that would say it lies on another broker, the exit status is 3."
    ),
    (
        "--count shows only the number of records that match. Where damage hides records, a line on standard error "
        "says where."
    ),
)
TIME_ORDER = (
    (
        "--order time shows all logs as one. The next records of all logs are compared: the one with the lowest "
        "timestamp comes first, of equal ones that of the first topic by name, then of the lowest partition. Within a "
        "log the order is that of the offsets. A record whose timestamp is lower than that of the record before it "
        "comes at once after it. So does a record without a timestamp, which counts as -1, and everything else that "
        "has none: damaged batches, gaps and tails. A timestamp that is far too high holds back what comes after it "
        "in its log. A batch is said once, before its first record; with --batches it counts with its max_timestamp."
    ),
    (
        "Whenever another log goes on, text and terminal say its file. A negative side of --offset and end in --time "
        "are those of each log. --count has no order. What is no log is refused."
    ),
    (
        "Of each log, the batch is in memory whose records come next, as it is and decompressed, and 4096 decoded "
        "records at most; the buffers take 16 KiB a log or more, and 64 MiB together where there are not more than "
        "4096 logs. At most 256 files are open at once, half of what the process may open if that is less."
    ),
)
EXAMPLES = [
    (
        "The records with a key, in all partitions of a topic:",
        "kdump dump --records --topic orders --key order-17 /data",
    ),
    (
        "What came from two o'clock in Berlin on:",
        "kdump dump --time 2026-11-21T14:00: --time-zone Europe/Berlin p/",
    ),
    ("What came between two and three hours ago:", "kdump dump --records --time -3h:-2h orders-3/"),
    ("What mentions one of some customers:", "kdump dump --records --value '/\"c-[0-9]+7\"/' orders-3/"),
    ("How many records have this header?", "kdump dump --count --header tenant=t-1 orders-3/"),
    ("The last ten records of each partition of a topic:", "kdump dump --records --last 10 --topic orders /data"),
    ("The last hour of a log:", "kdump dump --records --time end-1h: orders-3/"),
    ("What lies in the last hundred offsets:", "kdump dump --offset -100: orders-3/"),
    ("What a transactional id wrote:", "kdump dump --records --transactional-id payer-1 /data/orders-3"),
    (
        "What happened in all partitions of two topics, in the order of time:",
        "kdump dump --records --order time --topic orders --topic payments /data",
    ),
    ("The markers of a producer:", "kdump dump --records --control --producer 4001 orders-3/"),
]
