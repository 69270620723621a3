"""The words of the manual page of `kdump dump` about its formats of records."""

from __future__ import annotations

from typing import Final

TEMPLATE_INTRO: Final = (
    "--template writes each record as its text, in which tokens stand for parts of the record. They are those of kcat "
    "-f. Nothing is added, no end of a line either."
)
TOKENS: Final = {
    "%t %p %o": "Topic, partition and offset. Where the directory does not name a topic-partition, nothing and -1.",
    "%k %s": "Key and value, byte for byte. Nothing for null; NULL with -Z.",
    "%K %S": "The length of the key and of the value in bytes, -1 for null.",
    "%R": "The length of the value as 4 bytes, big-endian; -1 for null.",
    "%T": "The timestamp in milliseconds, -1 without one.",
    "%h": "The headers, NAME=VALUE with commas between them. The value of a null one is NULL.",
    "%{field}": "A field of the record lines of --format json (see JSON). Text and bytes are as they are, null is as "
    "with %k, everything else is JSON. With --decode or --schemas also key_decoded, value_decoded and decode_problem, "
    "and fields inside of the first two: %{value_decoded.data.offset}.",
    "%%": "A percent sign.",
    "\\n \\r \\t \\xNN \\\\": "Line feed, carriage return, tab, the byte with a hexadecimal number, a backslash.",
}
RECORDS_ALONE: Final = (
    (
        "Templates, --format values and --format csv write records and nothing else. Records of control batches "
        "are left out: no consumer gets them. Records are decoded only where --decode or --schemas is given. Damaged "
        "batches and bytes that are no batch are said on standard error. Files and pipes get the bytes as they "
        "are; on a terminal they are escaped, and of a long field only the beginning is shown."
    ),
    (
        "--format values writes the value of each record and a line feed, or --separator, or with -0 a NUL byte. "
        "With --decode it writes the message in the value as JSON, with --schemas the decoded value."
    ),
    (
        "--format csv writes a header line and the columns of kdump-convert(1): key, value, headers, topic, "
        "partition, offset, timestamp, timestampType. Null is an empty field, empty is a pair of quotes. Keys and "
        "values are base64; with --bytes hex they are hexadecimal digits, with --bytes utf8 text. With --decode or "
        "--schemas the columns key_decoded, value_decoded and decode_problem follow."
    ),
)
HEX: Final = (
    (
        "--format hex shows the bytes of a log field by field. A line has the position of the field in the file, its "
        "bytes, its name in Kafka and what they mean; a long field goes on in lines of 16 bytes. N zeros in a row are "
        "00 x N. All bytes of the file are there, in their order: those of damaged batches, gaps and tails too, as "
        "far as their fields can be told. An exclamation mark stands before a damaged field, and DAMAGED and the "
        "reason after it."
    ),
    (
        "The records of a compressed batch, and the messages in a compressed message, follow the bytes that hold "
        "them. Their lines begin with a bar, for they are not in the file: their positions count from the first byte "
        "that the codec gave. Records of internal topics and of control batches are followed by what they say. With "
        "--batches no record is taken apart. --offset and -n choose whole batches. On a terminal only the beginning "
        "of a long field is shown. Of each batch, gap and tail 10,000 lines are shown, then how many bytes are left, "
        "as a few hundred compressed bytes can hold millions of fields; --all shows every line."
    ),
)
EXAMPLES_OF_FORMATS: Final = [
    ("The first batch, byte by byte:", "kdump dump --format hex -n 1 topic-0/"),
    ("What is damaged, and why:", "kdump dump --format hex topic-0/ | tee bytes.txt | tail -n 40"),
    ("Offset, key and value of each record, as kcat prints them:", "kdump dump --template '%o %k=%s\\n' topic-0/"),
    (
        "The groups that have committed in a partition of __consumer_offsets, each time that they did:",
        "kdump dump --decode auto --template '%{key_decoded.data.group}\\n' p/",
    ),
    (
        "The values alone, for a program that reads JSON:",
        "kdump dump --format values topic-0/ | jq -r .id",
    ),
    ("A table for a spreadsheet:", "kdump dump --format csv --bytes utf8 topic-0/ | tee records.csv | tail -n 1"),
]
