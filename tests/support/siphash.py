"""SipHash with 128 bits of output, written down a second time."""

from __future__ import annotations

import struct


def siphash(data: bytes, key: bytes, rounds: int = 2, last_rounds: int = 4) -> bytes:
    """SipHash with 128 bits, written down a second time: of so many rounds for a word, and for each half at the end."""
    low, high = struct.unpack("<2Q", key)
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]
    v[1] ^= 0xEE

    def turned(word: int, by: int) -> int:
        return (word << by | word >> 64 - by) % 2**64

    def mix(count: int) -> None:
        for _ in range(count):
            for one, other, by, next_one, next_by in ((0, 1, 13, 2, 16), (2, 1, 17, 0, 21)):
                v[one] = (v[one] + v[other]) % 2**64
                v[next_one] = (v[next_one] + v[3]) % 2**64
                v[other] = turned(v[other], by) ^ v[one]
                v[3] = turned(v[3], next_by) ^ v[next_one]
                v[one] = turned(v[one], 32)

    whole = len(data) // 8 * 8
    last = data[whole:] + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", data[:whole] + last):
        v[3] ^= word
        mix(rounds)
        v[0] ^= word
    halves = []
    for at, mark in ((2, 0xEE), (1, 0xDD)):
        v[at] ^= mark
        mix(last_rounds)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return struct.pack("<2Q", *halves)
