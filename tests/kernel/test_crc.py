"""Every implementation of the kernel's checksums against a library's."""

import zlib
from random import Random

import crc32c as library
import pytest

from kdump.kernel import crc

DATA = Random(4).randbytes(100_000)
LENGTHS = [*range(600), *range(4090, 4700), 5344 * 3, 16363, 16384, len(DATA) - 64]


@pytest.mark.parametrize("implementation", crc.CRC_IMPLS)
def test_crc32c(implementation: str) -> None:
    for length in LENGTHS:
        for start, begun in ((0, 0), (length % 64, 0x9ABCDEF0)):
            piece = memoryview(DATA)[start : start + length]
            assert crc.crc32c(piece, begun, implementation) == library.crc32c(piece, begun), (length, start)


@pytest.mark.parametrize("implementation", crc.CRC_IMPLS)
def test_crc32c_goes_on(implementation: str) -> None:
    for cut in (0, 1, 63, 4095, 4096, 4097, 20_000, len(DATA)):
        begun = crc.crc32c(DATA[:cut], 0, implementation)
        assert crc.crc32c(DATA[cut:], begun, implementation) == library.crc32c(DATA), cut


def test_crc32() -> None:
    for length in LENGTHS:
        assert crc.crc32(DATA[:length]) == zlib.crc32(DATA[:length])


def test_the_quickest_is_taken() -> None:
    assert crc.CRC_IMPL == crc.CRC_IMPLS[-1]
    assert crc.CRC_IMPLS[0] == "table"
    with pytest.raises(ValueError, match="no CRC-32C implementation 'abacus' here, only table"):
        crc.crc32c(b"", 0, "abacus")
