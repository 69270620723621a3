"""The words of the manual about reading a log with an isolation level, with kdump dump."""

from __future__ import annotations

from typing import Final

ABOUT: Final = (
    (
        "With --isolation all, the default, everything is shown as it is stored. Batches and records of transactions "
        "that are known to be aborted have the mark aborted (text, terminal, JSON; not with --follow, and not of "
        "standard input). For it the markers of a segment with transactions are read first, and those of the segments "
        "after it until each transaction has ended. A consumer gets less. With "
        "--isolation read-uncommitted control batches are left out. With --isolation read-committed records of aborted "
        "transactions are left out, too, and the log ends at its last stable offset: the first offset of the first "
        "transaction that is open. What is damaged is shown as always."
    ),
    (
        "The next marker of its producer decides a transaction. So read-committed reads the whole log before it shows "
        "anything, all segments of the directory also where PATH names only some of them. A transaction is undecided "
        "where its marker cannot be read, or may be missing: damaged bytes come before the next marker, or offsets are "
        "missing there that the log cleaner did not take, or go back. kdump does not guess then: the log ends at the "
        "first offset of such a transaction, as it does at an open one. kdump convert without --until goes on after "
        "it. Transaction indexes are not read: they list aborted transactions alone."
    ),
    (
        "A log file that is no segment of a topic-partition directory, and standard input, are read as a whole log. "
        "The transactions that began before it and the markers that came after it are not known then, which is said. "
        "The high watermark is not known from the log either: a consumer may end before the last stable offset. "
        "Message sets of magic 0 and 1 have no transactions."
    ),
    (
        "With read-committed a line on standard error, in JSON the line isolation, says after each log where it ends, "
        "why, and how many records are left out: those of aborted transactions and those from the last stable offset "
        "on, as far as they have the offsets of --offset. The numbers are those in the headers of batches; other "
        "filters and damaged batches do not change them. They are not known where -n, --max-bytes, --last or --at "
        "leave bytes unread."
    ),
    (
        "With --follow and read-committed a log is read ahead of what is shown, and a record is shown when the marker "
        "that commits it has been written and all earlier transactions have ended. Where the last stable offset stays "
        "the same for a minute, or its transaction is undecided, a line on standard error says so, once. Where a "
        "broker truncates a marker, truncated names the first offset of its transaction: what was shown from there on "
        "comes again when it is decided. There is no line at the end of a log."
    ),
)
LINE: Final = {
    "topic": "of the log; null where the directory does not name it",
    "partition": "likewise",
    "isolation": "read-committed",
    "last_stable_offset": "where the log ends for a consumer; null of an empty log of unknown offset",
    "log_end_offset": "the one after the last offset of the log; likewise",
    "outcome": (
        "of the transaction at the last stable offset: open, or undecided; null where the last stable offset is the "
        "log end offset"
    ),
    "producer_id": "of that transaction; null without one",
    "producer_epoch": "likewise",
    "whole_log": "whether all segments of the log were read; false of a file alone and of standard input",
    "aborted_records": "of aborted transactions, which are left out; null where not all was read",
    "unstable_records": "from the last stable offset on, which are left out; likewise",
    "exact": "false where fewer than these may have the offsets that were asked for",
    "filtered": "whether there are filters that the two numbers do not obey",
}
EXAMPLES: Final = [
    (
        "What a consumer with isolation.level=read_committed gets:",
        "kdump dump --records --isolation read-committed orders-3/",
    ),
    (
        "Where does such a consumer wait, and for which producer?",
        "kdump dump --isolation read-committed --count orders-3/",
    ),
]
