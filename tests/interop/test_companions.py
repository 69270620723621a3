"""The companions of a log, read by kdump and by Kafka's own readers and dump tool, sound and damaged.

KDUMP_COMPANION_CASES and KDUMP_COMPANION_SEED choose how many damaged files of a kind, and which.
"""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import struct
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import crc32c
import pytest

from kdump.cli import run
from kdump.format import (
    checkpoint,
    clean_shutdown,
    meta_properties,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    text_files,
)
from kdump.format.checkpoint import CheckpointError
from kdump.format.producer_snapshot import SnapshotError

READERS = Path(__file__).with_name("Companions.java")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
DUMP_ALL = FIXTURES / "make" / "DumpAll.java"
CASES = int(os.environ.get("KDUMP_COMPANION_CASES", "500"))
SEED = os.environ.get("KDUMP_COMPANION_SEED", "0")

# --- readers ----------------------------------------------------------------------------------------------------------


def hexadecimal(text: str) -> str:
    return text.encode("utf-16-be").hex()


def optional(value: object) -> str:
    return "Optional.empty" if value is None else f"Optional[{value}]"


def epochs(data: bytes) -> str:
    return "".join(f"{epoch} {start_offset};" for epoch, start_offset in checkpoint.epoch_entries(data))


def offsets(data: bytes) -> str:
    found = {
        f"{hexadecimal(topic)} {partition}": offset for topic, partition, offset in checkpoint.offset_entries(data)
    }
    return "".join(f"{key} {found[key]};" for key in sorted(found))


def metadata(data: bytes) -> str:
    found = partition_metadata.parse_partition_metadata(data)
    return f"{found.version} {found.topic_id}"


def properties(data: bytes) -> str:
    found = {hexadecimal(key): hexadecimal(value) for key, value in meta_properties.properties(data)}
    return "".join(f"{key}={found[key]};" for key in sorted(found))


def meta(data: bytes) -> str:
    found = meta_properties.parse_meta_properties(data)
    cluster_id = None if found.cluster_id is None else hexadecimal(found.cluster_id)
    return f"{found.version} {optional(cluster_id)} {optional(found.node_id)} {optional(found.directory_id)}"


def quorum(data: bytes) -> str:
    found = quorum_state.parse_quorum_state(data)
    directory_id = None if found.voted_directory_id in (None, text_files.ZERO_UUID) else found.voted_directory_id
    voted = None if found.voted_id == -1 else f"{found.voted_id} {optional(directory_id)}"
    return f"{found.leader_epoch} {found.leader_id} {optional(voted)}"


def clean(data: bytes) -> str:
    try:
        epoch = clean_shutdown.parse_clean_shutdown(data).broker_epoch
    except CheckpointError:
        epoch = None
    return "OptionalLong.empty" if epoch is None else f"OptionalLong[{epoch}]"


def producers(data: bytes) -> str:
    text = ""
    for entry in producer_snapshot.parse_entries(data):
        transaction = (
            f"OptionalLong[{entry.current_txn_first_offset}]" if entry.has_transaction else "OptionalLong.empty"
        )
        text += f"{entry.producer_id} {entry.producer_epoch} {entry.coordinator_epoch} {entry.timestamp} {transaction}"
        text += f" {entry.first_sequence} {entry.last_offset};" if entry.has_batch else ";"
    return text


class Reader(NamedTuple):
    """How kdump reads a kind of file, what real ones there are, and pieces that make damaged ones of them."""

    read: Callable[[bytes], str]
    pattern: str
    more: tuple[bytes, ...]
    pieces: tuple[bytes, ...]


NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"-",
    b"+",
    b"9999999999",
    b"99999999999999999999",
    b"2147483648",
    b"%s1" % (b"0" * 40),
    b"a",
)
BLANKS = (b" ", b"\t", b"\n", b"\r", b"\r\n", b"\x0b", b"\x0c", b"\x1c", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xff")
DIGITS = tuple(digit.encode() for digit in ("\u0661", "\uff17", "\U0001d7d8"))
ESCAPES = (
    b"\\",
    b"=",
    b":",
    b"#",
    b"!",
    b"\\u00e9",
    b"\\u",
    b"u",
    b"\\t",
    b"\\q",
    b"\\\n",
    b"\\\r\n",
    b"\x85",
    b"\xe9",
    b"0041",
)
JSON = (
    b"{",
    b"}",
    b'"',
    b",",
    b":",
    b"null",
    b"1.5",
    b'"1"',
    b"true",
    b"[]",
    b"NaN",
    b"1e3",
    b"65536",
    b"01",
    b"/*x*/",
    b"'",
    b"\\u0041",
)
LINES = (
    b"0\n2\n0 0\n1\t5 \n",
    b"0\r\n1\r\n0 0\r\n",
    b"0\r1\r3 4",
    b"+0\n+1\n+3 -4\n",
    b"0\n1\n 5 6\n",
    b"0\n2\na 1 2\nb\t3\t4\n",
)
OLD_QUORUM = b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'  # noqa: E501
ODD_PROPERTIES = b" a\\ b : c\\\n   d\\u0041\n!x\nk\n=v\n\\\n#q=1\nz=\\\n\ny\\==3\\\\\nq \\t=\\q\n\\\n"

KINDS = {
    "epochs": Reader(epochs, "*/*/leader-epoch-checkpoint", LINES, NUMBERS + BLANKS + DIGITS),
    "offsets": Reader(offsets, "*/*-offset-checkpoint", LINES, NUMBERS + BLANKS + DIGITS),
    "metadata": Reader(
        metadata, "*/*/partition.metadata", (), (*NUMBERS, *BLANKS, b": ", b":", b"==", b"=", b"_", b"/")
    ),
    "properties": Reader(properties, "*/meta.properties", (ODD_PROPERTIES,), BLANKS + ESCAPES),
    "meta": Reader(meta, "*/meta.properties", (), (*NUMBERS, *BLANKS, *ESCAPES, b"version=", b"directory.id")),
    "quorum": Reader(quorum, "*/*/quorum-state", (OLD_QUORUM,), NUMBERS + BLANKS + JSON),
    "clean": Reader(
        clean,
        "*/.kafka_cleanshutdown",
        (b'{"version":0,"brokerEpoch":13}',),
        (*BLANKS, b"{", b"}", b'"', b",", b"null"),
    ),
    "snapshot": Reader(producers, "*/*/*.snapshot", (), (b"\0", b"\1", b"\xff", b"\0\0\0\1", b"\x7f\xff\xff\xff")),
}
_JSON_VALUE = re.compile(rb':("[^"]*"|[-0-9.]+|\[[^\]]*\])')


def damaged(rng: random.Random, kind: str, data: bytes) -> bytes:
    pieces = KINDS[kind].pieces
    for _ in range(rng.randrange(4)):
        values = list(_JSON_VALUE.finditer(data)) if kind == "quorum" else []
        at, size = rng.randrange(len(data) + 1), rng.choice((0, 0, 1, 2, 5))
        if values and rng.random() < 0.3:
            at, stop = rng.choice(values).span(1)
            size = stop - at
        elif rng.random() < 0.1:
            size = len(data)
        data = data[:at] + rng.choice((b"", *pieces)) + data[at + size :]
    if kind == "snapshot" and len(data) >= producer_snapshot.HEADER_SIZE and rng.random() < 0.5:
        data = data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]
    return data


@pytest.mark.parametrize("kind", KINDS)
def test_readers(kafka: ModuleType, kind: str) -> None:
    reader = KINDS[kind]
    real = [path.read_bytes() for path in sorted(FIXTURES.glob(reader.pattern))]
    assert real
    rng = random.Random(f"{kind}:{SEED}")
    cases = [*real, *reader.more, *(damaged(rng, kind, rng.choice([*real, *reader.more])) for _ in range(CASES))]
    wrong, outcomes = [], Counter[bool]()
    for data, theirs in zip(cases, asked(kafka, kind, cases), strict=True):
        try:
            ours = reader.read(data)
        except (CheckpointError, SnapshotError):
            ours = "refused"
        outcomes[ours == "refused"] += 1
        # half a surrogate pair is U+FFFD here
        if ours != theirs and not (kind in ("properties", "meta") and "fffd" in ours):
            wrong.append(f"{data!r}\n  kdump: {ours}\n  Kafka: {theirs}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(cases)} differ", *wrong[:10]])
    assert outcomes[False] > len(real)
    assert outcomes[True] > CASES / 50 or kind == "clean"


def asked(kafka: ModuleType, kind: str, cases: list[bytes]) -> list[str]:
    lines = "".join(f"{kind} {b64encode(data).decode()}\n" for data in cases)
    done = kafka.run_source(kafka.NEWEST, READERS, stdin=lines.encode())
    answers: list[str] = done.stdout.decode().splitlines()
    return answers


def test_snapshots_are_written_alike(kafka: ModuleType) -> None:
    rng = random.Random(f"rewrite:{SEED}")
    built: list[bytes] = []
    for _ in range(CASES):
        count = rng.choice((0, 1, 5, 8, 9, 12, 13, 24, 25, 48, 49, 96, 97, 500))
        draw = rng.choice(
            (
                lambda: rng.randrange(100),
                lambda: rng.randrange(2000),
                lambda: rng.randrange(100) * 1000 + rng.randrange(5),
                lambda: rng.randrange(-1 << 63, 1 << 63),
                lambda: rng.randrange(3) * 16 + rng.randrange(12),
            )
        )
        known = dict.fromkeys(draw() for _ in range(count))
        # as the map of a broker gets them, in an order of its own
        body = b"".join(struct.pack(">qhiqiqiq", producer, 0, 4, 24, 4, 1000, -1, -1) for producer in known)
        data = struct.pack(">i", len(known)) + body
        built.append(struct.pack(">hI", 1, crc32c.crc32c(data)) + data)
    theirs = [b64decode(answer) for answer in asked(kafka, "rewrite", built)]
    assert [producer_snapshot.build(producer_snapshot.parse_entries(data)) for data in built] == theirs
    assert any(ours != data for ours, data in zip(theirs, built, strict=True))


# --- the dump tool ----------------------------------------------------------------------------------------------------

SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")


def mutated(rng: random.Random, data: bytes) -> bytes:
    match rng.randrange(7):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            return data + bytes(rng.choice((1, 8, 12, 24, 120, 1000)))
        case 2:
            return bytes(rng.choice((8, 12, 24, 240)))
        case 3:
            return data + rng.randbytes(rng.randrange(60))
        case 4:
            return data
    changed = bytearray(data or bytes(48))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed))
        changed[at] = rng.choice((0, 0, changed[at] ^ 1 << rng.randrange(8)))
    return bytes(changed)


def companions(directory: Path) -> Iterator[Path]:
    """Segments of the fixtures with their indexes, each in a directory of its own, one file of each damaged."""
    rng = random.Random(f"tool:{SEED}")
    real = [path for suffix in SUFFIXES for path in sorted(FIXTURES.glob(f"*/*/*{suffix}"))]
    for number in range(CASES):
        path = rng.choice(real)
        place = directory / str(number)
        place.mkdir()
        for beside in path.parent.glob(f"{path.stem}.*"):
            if beside.suffix in (".log", ".index", ".timeindex"):
                shutil.copy(beside, place)
        (place / path.name).write_bytes(mutated(rng, path.read_bytes()))
        yield place / path.name


def printed(path: Path) -> bytes:
    kept = io.BytesIO()
    out = io.TextIOWrapper(kept, encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", io.StringIO())
        assert run(["dump", "--format", "kafka", str(path)]) in (0, 1)
        out.flush()
    return kept.getvalue()


def test_the_dump_tool(kafka: ModuleType, tmp_path: Path) -> None:
    files = list(companions(tmp_path))
    mine = [printed(path) for path in files]
    lines = "".join(f"{tmp_path / str(number)}.out\t{path}\n" for number, path in enumerate(files))
    done = kafka.run_source(kafka.NEWEST, DUMP_ALL, stdin=lines.encode())
    statuses = list(map(int, done.stdout.split()))
    assert len(statuses) == len(files)
    wrong = []
    for number, (path, status, ours) in enumerate(zip(files, statuses, mine, strict=True)):
        theirs = (tmp_path / f"{number}.out").read_bytes()
        # where the tool ends with an exception, the output here goes on
        if (ours if status == 0 else ours[: len(theirs)]) != theirs:
            wrong.append(
                f"{path} {path.read_bytes()[:100].hex()}\n  kdump: {ours[-300:]!r}\n  tool:  {theirs[-300:]!r}"
            )
    assert not wrong, "\n".join([f"{len(wrong)} of {len(files)} differ", *wrong[:10]])
    assert statuses.count(0) > len(files) / 2
