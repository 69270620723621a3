"""The words of the manual on object stores: what is read there, how it is configured, and what it costs."""

from __future__ import annotations

from typing import Final

IN_PATHS: Final = (
    "A URL such as s3://bucket/broker-1 names what an object store holds, which is read only: see OBJECT STORES in "
    "kdump(1)."
)

OBJECT_STORES: Final = (
    (
        "Where PATH is a URL, kdump reads through fsspec: s3:// (pip install 'kdump[cloud]', which brings s3fs), "
        "gs:// (pip install gcsfs), abfs:// (adlfs), hdfs:// (pyarrow and Hadoop), and every other protocol that "
        "fsspec knows and that lists directories. kdump verify, stat, dump, convert and the preview of recover "
        "print the same as for a local copy, with the URL as path. Nothing is written there: a strategy, --undo and "
        "--resume of kdump recover, an OUT of kdump convert that is a URL, and dump --at end with status 3."
    ),
    (
        "Credentials, region and endpoint come from the configuration of fsspec and of the library below it: the "
        "variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and "
        "the files in ~/.aws for s3://; FSSPEC_S3_ANON=true, FSSPEC_S3_KEY and any other argument of the file "
        "system by its name; or a file in ~/.config/fsspec. A URL with a password in it is refused, because reports "
        "show the URL."
    ),
    (
        "A PATH that is a directory is listed once with all that is below it: one request for 1,000 objects. What "
        "was listed answers for 5 minutes. An object takes a HEAD request when it is opened and a log one more at "
        "its end; its bytes come in ranges of 8 MiB. A log of 1 GiB with its companions takes about 145 requests, "
        "and no byte is read twice where --jobs is 1; two ranges of a log that several processes read overlap by at "
        "most 1 MiB. kdump stat reads whole logs, too: an object store has no cheap way to read headers alone. A "
        "process needs 110 MiB of memory, most of it for s3fs."
    ),
    (
        "The libraries repeat requests that fail or are throttled, with growing pauses (AWS_MAX_ATTEMPTS, "
        "AWS_RETRY_MODE); kdump repeats nothing again. What fails in the end is an error of its path. The version "
        "of an object is pinned when it is opened (If-Match in S3; elsewhere it is compared at the end): an object "
        "that is replaced or deleted while it is read is an error of its path, too, and never a mixture of two."
    ),
    (
        "What an object store does not have: directories without files, links, locks of a running broker, and the "
        "times of the files. modified_ms in kdump stat is the time of the upload, and so is the age of a segment "
        "without timestamps; allocated_bytes is the size."
    ),
)
