"""How a new log is written."""

from kdump.format import codec as codecs
from kdump.format.java import MAX_INT
from kdump.log.log_slice import EVERYTHING, Bounds
from kdump.named_tuple import NamedTuple
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.walk import MAX_BATCH_BYTES


class LogOutputOptions(NamedTuple):
    """How the new log is written.

    `codec`: a name of kdump.format.batch.CODECS; None keeps the codec of each batch. With a `level` each batch is
    compressed again. `segment_bytes`: a segment rolls before it has more. `batch_bytes`: uncompressed messages of magic
    0 and 1 are joined into batches of about so many bytes before compression. `max_batch_bytes`: larger batches are
    skipped as damage. `read_policy`: how the batches are read. `time`: a range of record timestamps in milliseconds;
    other records are left out, and markers of transactions of which no record is left.
    """

    codec: str | None = None
    level: int | None = None
    segment_bytes: int = 1 << 30
    batch_bytes: int = 16 << 10
    max_batch_bytes: int = MAX_BATCH_BYTES
    read_policy: ReadPolicy = ReadPolicy()
    time: Bounds = EVERYTHING


def parse_codec(text: str) -> tuple[str, int | None]:
    """The codec and the level of `zstd` or `zstd:9`. Raises ValueError."""
    name, colon, level = text.partition(":")
    if name not in codecs.CODECS:
        raise ValueError(f"there is no codec {name!r}; the codecs are {', '.join(codecs.CODECS)}")
    if not colon:
        return name, None
    try:
        number = int(level)
    except ValueError:
        raise ValueError(f"the level of a codec is a number, not {level!r}") from None
    codecs.check_level(codecs.CODECS.index(name), number)
    return name, number


def check_log_options(options: LogOutputOptions) -> None:
    """Raise ValueError for options that do not fit."""
    if options.codec is not None and options.codec not in codecs.CODECS:
        raise ValueError(f"there is no codec {options.codec!r}; the codecs are {', '.join(codecs.CODECS)}")
    if options.level is not None:
        if options.codec is None:
            raise ValueError("a level needs a codec")
        codecs.check_level(codecs.CODECS.index(options.codec), options.level)
    # A broker takes a segment.bytes from 14 on (LogConfig), and positions have 32 bits.
    if not 14 <= options.segment_bytes <= MAX_INT:
        raise ValueError(f"a segment has from 14 to {MAX_INT} bytes, not {options.segment_bytes}")
    if not 1 <= options.batch_bytes <= MAX_INT:
        raise ValueError(f"a batch has from 1 to {MAX_INT} bytes, not {options.batch_bytes}")
