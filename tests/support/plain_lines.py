"""The lines of records, one value after another: plain, slow and obvious, to compare kdump.kernel.lines with.

And `opened`: records that stand in no log, laid out as the kernel would.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

from kdump.format import control
from kdump.format.batch import Batch
from kdump.format.kafka07 import Message
from kdump.format.record import Record
from kdump.kernel.results import NO_VALUE
from kdump.render.escaping import bytes_text
from kdump.render.json import Encode, json_string, json_value
from kdump.render.kafka import control_text
from kdump.render.sentences import iso_time
from kdump.render.text import control_word
from kdump.storage.records import DecodedBatch


def opened(records: Iterable[Record]) -> DecodedBatch:
    """Rows and headers over a payload that holds the bytes of the records' fields; what a sequence is, only the batch
    says."""
    payload = bytearray()
    rows, headers = array("q"), array("q")

    def place(data: bytes | None) -> tuple[int, int]:
        at = len(payload)
        payload.extend(data or b"")
        return at, -1 if data is None else len(data)

    for record in records:
        crc, computed = (
            (NO_VALUE, NO_VALUE)
            if record.crc is None
            else (record.crc, record.crc if record.crc_ok else record.crc ^ 1)
        )
        first = len(headers) // 4
        for key, value in record.headers:
            headers.extend((*place(key), *place(value)))
        fields = (*place(record.key), *place(record.value), first, len(record.headers))
        rows.extend(
            (record.position, record.size, record.offset, record.timestamp, *fields, record.magic, crc, computed, 0)
        )
    return DecodedBatch(
        bytes(payload), memoryview(rows.tobytes()).cast("q"), memoryview(headers.tobytes()).cast("q"), None
    )


def text_lines(batch: Batch, records: Iterable[Record], mode: str = "auto") -> str:
    """The lines of records of one batch, each with its line end."""
    is_control = batch.control
    lines: list[str] = []
    for record in records:
        timestamp = record.timestamp
        time = iso_time(timestamp)
        line = (
            f"  record offset={record.offset} time={time} timestamp={timestamp} "
            f"key={bytes_text(record.key, mode)} value={bytes_text(record.value, mode)}"
        )
        if record.headers:
            headers_text = ",".join(
                [f"{bytes_text(key, mode)}={bytes_text(value, mode)}" for key, value in record.headers]
            )
            line += f" headers=[{headers_text}]"
        if record.sequence != -1:
            line += f" sequence={record.sequence}"
        if is_control:
            line += f" control={control_word(record.key, record.value)}"
        if record.crc_ok is False:
            line += " crc=WRONG"
        lines.append(line + "\n")
    return "".join(lines)


_NO_TIME = 'null,"timestamp_type":"NoTimestampType","key":'


def json_lines(path: str, topic: str, partition: str, batch: Batch, records: Iterable[Record], encode: Encode) -> str:
    """The `record` objects of one batch with their line ends; `path`, `topic` and `partition` are JSON already."""
    legacy = batch.is_legacy
    is_control = batch.control
    timeless = isinstance(batch, Message)
    head = f'{{"type":"record","path":{path},"topic":{topic},"partition":{partition},"offset":'
    kind = f',"timestamp_type":"{batch.timestamp_type}","key":'
    place = f',"position":{batch.position},"batch_offset":{_number(batch.base_offset)},'
    end = f',"producer_id":{"null" if legacy else batch.producer_id},"control":{"true" if is_control else "false"}'
    lines: list[str] = []
    for record in records:
        headers = record.headers
        headers_text = (
            "[" + ",".join([f'{{"key":{encode(key)},"value":{encode(value)}}}' for key, value in headers]) + "]"
            if headers
            else "[]"
        )
        # a message of magic 0 has no timestamp, whatever the wrapper around it says
        time = _NO_TIME if record.magic == 0 or timeless else f"{record.timestamp}{kind}"
        sequence = "null" if legacy else record.sequence
        lines.append(
            f'{head}{record.offset},"timestamp":{time}{encode(record.key)},"value":{encode(record.value)},'
            f'"headers":{headers_text}{place}"sequence":{sequence}{end}'
            f"{control_fields(record, encode) if is_control else ''}}}\n"
        )
    return "".join(lines)


def control_fields(record: Record, encode: Encode) -> str:
    kind, epoch, value = "null", "null", "null"
    try:
        key = control.decode_key(record.key)
        kind = json_string(key.name) if key.type in control.TYPES else str(key.type)
        decoded = control.decode_value(key.type, record.value)
    except ValueError:
        # key and value stand in the line as bytes; what is wrong with them is a finding
        decoded = None
    if isinstance(decoded, control.EndTransactionMarker):
        epoch = str(decoded.coordinator_epoch)
    if decoded is not None:
        value = json_value(decoded, encode)
    return f',"control_type":{kind},"coordinator_epoch":{epoch},"control_value":{value}'


def _number(value: int | None) -> str:
    return "null" if value is None or value == NO_VALUE else str(value)


def kafka_lines(
    batch: Batch, records: Iterable[Record], *, metadata: bool, contents: bool, text: Callable[[bytes], str]
) -> str:
    """The lines of records of one batch (DumpLogSegments.dumpBatchRecords); `text` decodes keys and values."""
    label = batch.timestamp_type
    legacy = batch.is_legacy
    is_control = batch.control
    contents = contents and not is_control
    before = " " if metadata else "| "
    lines: list[str] = []
    for record in records:
        key, value = record.key, record.value
        line = ""
        if metadata:
            line = (
                f"| offset: {record.offset} {label}: {record.timestamp} keySize: {-1 if key is None else len(key)}"
                f" valueSize: {-1 if value is None else len(value)}"
            )
            if legacy:
                line += f" isValid: {'true' if record.crc_ok else 'false'} crc: {record.crc}"
            elif record.headers:
                names = ",".join([text(name) for name, _ in record.headers])
                line += f" sequence: {record.sequence} headerKeys: [{names}]"
            else:
                line += f" sequence: {record.sequence} headerKeys: []"
            if is_control:
                line += control_text(key, value, text)
        if contents:
            if key is not None:
                line += f"{before}key: {text(key)}"
                if value is not None:
                    line += f" payload: {text(value)}"
            elif value is not None:
                line += f"{before}payload: {text(value)}"
        lines.append(line + "\n")
    return "".join(lines)
