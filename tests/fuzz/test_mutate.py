"""A share of the mutated segments of `mutate.py`, and that it notices what it looks for."""

from __future__ import annotations

import pytest

from fuzz import corpus, mutate
from fuzz.check import LIMIT_BYTES, Case, Difference, check
from fuzz.copied import check_copied
from support import build


@pytest.mark.daily(3)
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_kernel_and_oracle_agree(first: int) -> None:
    found = [problem for number in range(first, first + 100) if (problem := mutate.failure(1, number))]
    assert not found, "\n".join(found)


def test_a_case_is_its_seed_and_number() -> None:
    assert mutate.case(3, 7) == mutate.case(3, 7)
    assert len({mutate.case(3, number).data for number in range(50)}) > 40


def test_a_difference_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = build.batch([build.record(b"k", b"v")]) + b"\0"
    check(Case(data, 0))
    monkeypatch.setattr("support.oracle.verify", lambda *_, **__: [])
    with pytest.raises(Difference, match="findings"):
        check(Case(data, 0))


def test_sealed_again() -> None:
    data = bytearray(build.batch([build.record(b"k", b"v")]) + build.message_v0(b"k", b"v", offset=1))
    sound = bytes(data)
    data[17:21] = data[-14 - 12 + 4 : -14 - 12 + 8] = b"\1\2\3\4"
    assert corpus.resealed(sound) == sound
    again = corpus.resealed(bytes(data))
    assert again[17:21] == sound[17:21]


def test_two_messages_with_another_magic_that_nothing_follows() -> None:
    """Before magic 2 the checksum covers the magic, and shows that the message ends where it claims."""
    messages = [bytearray(build.message_v0(b"k", b"v" * 30, offset=offset)) for offset in (5, 9, 20)]
    for message in messages[1:]:
        message[16] = 0x81
    for limit in (LIMIT_BYTES, 60):
        for end in (b"", b"garbage without a header"):
            check(Case(b"".join(messages) + end, 0, max_batch_bytes=limit))


def test_a_log_cannot_end_after_the_largest_offset() -> None:
    # A batch in it has an offset of 2^63 - 1; nothing could follow it in a new log.
    check_copied(mutate.case(9, 486))
