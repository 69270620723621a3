"""Templates of kdump on the log of a broker print what kcat, a consumer, prints of the same topics with -f.

kcat and kdump differ in one thing, which is not compared: with -Z kcat writes NULL for an empty key or value, too.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from support.command_runs import run_inside

MAKE = Path(__file__).resolve().parents[2] / "fixtures" / "make"
TIMEOUT_S: Final = 120
TOPICS: Final = ("plain", "nulls", "append-time", "transactions", "codecs")
ALL_TOKENS: Final = r"%t|%p|%o|%k|%K|%s|%S|%T|%h|%R%%\n\r\t\x01\x7e\\"


class Topics:
    """A broker with topics that kcat and a transactional producer have written."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        self._bootstrap = bootstrap
        self.logs = logs

    def kcat(self, *arguments: str, data: bytes = b"") -> bytes:
        """What kcat prints."""
        command = ("kcat", "-b", self._bootstrap, *arguments)
        done = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def produce(self, topic: str, data: bytes, *arguments: str) -> None:
        """Write lines KEY:VALUE."""
        self.kcat("-P", "-t", topic, "-p", "0", "-K", ":", *arguments, data=data)

    def consumed(self, topic: str, template: str, *arguments: str) -> bytes:
        """What kcat prints of the records of partition 0, aborted ones included."""
        where = ("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "isolation.level=read_uncommitted")
        return self.kcat(*where, *arguments, "-f", template)


@pytest.fixture(scope="module")
def topics(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not on the PATH")
    with kafka.kraft_broker(tmp_path_factory.mktemp("kcat") / "broker") as broker:
        named = ("plain:1:", "nulls:1:", "codecs:1:", "append-time:1:message.timestamp.type=LogAppendTime")
        kafka.run_source(kafka.NEWEST, MAKE / "Topics.java", broker.bootstrap, *named, "transactions:2:")
        kafka.run_source(kafka.NEWEST, MAKE / "Transactions.java", broker.bootstrap, "transactions", "every")
        made = Topics(broker.bootstrap, broker.logs)
        made.produce("plain", b"k1:v1\nk2:v2 \xff\x00\x1b[2J\n:empty key\nk4:\n", "-H", "trace=1", "-H", "empty=")
        made.produce("plain", b"k5:v5\n")
        # With -Z kcat writes null for what is empty.
        made.produce("nulls", b":null key\nnull value:\n:\n", "-Z", "-H", "null")
        made.produce("append-time", b"k:v\n")
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            made.produce(
                "codecs", b"".join(b"%b-%d:%b\n" % (codec.encode(), n, b"v" * n) for n in range(50)), "-z", codec
            )
        yield made


@pytest.mark.parametrize("topic", TOPICS)
def test_every_token(topics: Topics, topic: str) -> None:
    expected = topics.consumed(topic, ALL_TOKENS)
    ran = run_inside(topics.logs, "dump", "--template", ALL_TOKENS, f"{topic}-0")
    assert ran.out == expected
    assert ran.err == b""
    assert expected.count(b"\n") >= 1


@pytest.mark.parametrize("topic", ["nulls", "codecs"])
def test_null_as_a_word(topics: Topics, topic: str) -> None:
    expected = topics.consumed(topic, "%k=%s;", "-Z")
    if topic == "codecs":  # the first value of each codec is empty
        expected = expected.replace(b"=NULL;", b"=;")
    else:
        assert expected == b"NULL=null key;null value=NULL;NULL=NULL;"
    assert run_inside(topics.logs, "dump", "-Z", "--template", "%k=%s;", f"{topic}-0").out == expected


def test_values(topics: Topics) -> None:
    expected = topics.consumed("codecs", r"%s\n")
    assert run_inside(topics.logs, "dump", "--format", "values", "codecs-0").out == expected
