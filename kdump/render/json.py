"""JSON Lines: one object a line, `type` and `path` first, the last one of a run a `summary`.

Integers are numbers, times are milliseconds since the epoch, a stored -1 stays -1. Null stands where the format has no
such field (magic 0 has no timestamp, magic 0 and 1 have no producer and no leader epoch) and where the value is
unknown. Objects of one type have the same keys in the same order. The exceptions are `control_type`,
`coordinator_epoch` and `control_value`, which only records of control batches have, `key_decoded`, `value_decoded` and
`decode_problem`, which only decoded records have, and `aborted`, which only batches of aborted transactions and their
records have (after `control`).

A binary field (record keys and values, header keys and values, bytes in the data of a finding) is a string when it is
valid UTF-8 and `{"base64": "…"}` when it is not. The other modes make every one a plain string: base64, hex, or utf8
with U+FFFD for malformed bytes. Null is `null`, empty is `""`. A path is a string when it is valid UTF-8, else
`{"base64": "…"}`, in every mode; so is a topic, which comes from the name of a directory.

The output is UTF-8. Beside what JSON demands, DEL, the C1 controls, line separators and everything that changes the
direction of text are escaped, so that a terminal can show every line.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from typing import IO, TYPE_CHECKING, Any

from kdump.kernel.results import NO_VALUE
from kdump.render.base import ConversionRenderer, RecoveryRenderer, RenderOptions, StatRenderer, VerifyRenderer
from kdump.render.dump_renderer import DumpRenderer
from kdump.render.escaping import Path, replaced
from kdump.render.sentences import gap_reason
from kdump.verify.findings import finding_fields

if TYPE_CHECKING:
    from kdump.convert.results import ConvertSummary, OutputFile
    from kdump.dump.events import BatchRun, IsolationNote, MatchCount
    from kdump.format.batch import Batch
    from kdump.format.internal_topics.decoded import DecodedRecord
    from kdump.format.json_types import Fields
    from kdump.format.naming import TopicPartition
    from kdump.recover.plan import Action, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.replicas.compare import ComparisonSummary
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary
    from kdump.stat.rows import Row
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.findings import Finding
    from kdump.verify.summary import VerifySummary

SCHEMA = 3

Encode = Callable[[bytes | None], str]

# json escapes " \ and C0 only
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_string(text: str) -> str:
    """A JSON string with its quotes, in which everything that a terminal would obey is escaped."""
    if text.isascii():
        return encode_basestring(text) if "\x7f" not in text else encode_basestring(text).replace("\x7f", "\\u007f")
    found = encode_basestring(text)
    if _UNSAFE.search(found) is None:
        return found
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", found)


def json_text(text: str) -> str:
    """Text that may come from a file name. Where it is not UTF-8, the result is an object with its base64."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode_auto(text.encode("utf-8", "surrogateescape"))
    return json_string(text)


def _in_base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def encode_auto(data: bytes | None) -> str:
    """A binary field: null, a string when it is valid UTF-8, else an object with its base64."""
    if data is None:
        return "null"
    try:
        return json_string(str(data, "utf-8"))
    except UnicodeDecodeError:
        return f'{{"base64":"{_in_base64(data)}"}}'


def _encode_base64(data: bytes | None) -> str:
    return "null" if data is None else f'"{_in_base64(data)}"'


def _encode_hex(data: bytes | None) -> str:
    return "null" if data is None else f'"{data.hex()}"'


def _encode_utf8(data: bytes | None) -> str:
    return "null" if data is None else json_string(str(data, "utf-8", "replace"))


ENCODERS: dict[str, Encode] = {
    "auto": encode_auto,
    "base64": _encode_base64,
    "hex": _encode_hex,
    "utf8": _encode_utf8,
}


def json_path(path: Path) -> str:
    """A file name: a string when it is valid UTF-8, else an object with its base64."""
    return encode_auto(os.fsencode(path))


def json_value(value: object, encode: Encode = encode_auto) -> str:
    """Any value of the library: NamedTuples become objects, sequences arrays, enumerations their value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            # no NaN and no infinity in JSON
            return repr(value) if value - value == 0 else "null"
        case str():
            return json_text(str(value))
        case bytes() | bytearray() | memoryview():
            return encode(bytes(value))
        case Mapping():
            inner = ",".join(f"{json_string(str(key))}:{json_value(item, encode)}" for key, item in value.items())
            return f"{{{inner}}}"
        case tuple() if hasattr(value, "_asdict"):
            return json_value(value._asdict(), encode)
        case os.PathLike():
            return json_path(value)
        case Iterable():
            return f"[{','.join(json_value(item, encode) for item in value)}]"
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


def batch_line(path: str, batch: Batch, crc_ok: bool | None, *, aborted: bool = False) -> str:
    """One `batch` object with its line end; `path` is JSON already."""
    name = json_value(batch.codec_name)
    head = (
        f'{{"type":"batch","path":{path},"position":{batch.position},"size":{batch.size},"magic":{batch.magic},'
        f'"base_offset":{_number(batch.base_offset)},"last_offset":{batch.last_offset},"count":{_number(batch.count)},'
    )
    crc = f'"crc":{batch.crc},"crc_ok":{json_value(crc_ok)},"codec":{name},'
    if batch.is_legacy:
        timestamp = "null" if batch.timestamp_type == "NoTimestampType" else str(batch.max_timestamp)
        return (
            f'{head}"partition_leader_epoch":null,{crc}"timestamp_type":"{batch.timestamp_type}",'
            f'"base_timestamp":{timestamp},"max_timestamp":{timestamp},"delete_horizon_ms":null,"producer_id":null,'
            '"producer_epoch":null,"base_sequence":null,"last_sequence":null,"transactional":false,"control":false}\n'
        )
    return (
        f'{head}"partition_leader_epoch":{batch.partition_leader_epoch},{crc}'
        f'"timestamp_type":"{batch.timestamp_type}","base_timestamp":{batch.base_timestamp},'
        f'"max_timestamp":{batch.max_timestamp},"delete_horizon_ms":{_number(batch.delete_horizon_ms)},'
        f'"producer_id":{batch.producer_id},"producer_epoch":{batch.producer_epoch},'
        f'"base_sequence":{batch.base_sequence},"last_sequence":{batch.last_sequence},'
        f'"transactional":{"true" if batch.transactional else "false"},'
        f'"control":{"true" if batch.control else "false"}{_ABORTED * aborted}}}\n'
    )


_ABORTED = ',"aborted":true'
_NO_TIME = b'null,"timestamp_type":"NoTimestampType","key":'


def _control_fields(key: bytes | None, value: bytes | None, encode: Encode) -> bytes:
    kind, epoch, content = "null", "null", "null"
    from kdump.format import control

    try:
        decoded_key = control.decode_key(key)
        kind = json_string(decoded_key.name) if decoded_key.type in control.TYPES else str(decoded_key.type)
        decoded = control.decode_value(decoded_key.type, value)
    except ValueError:
        # the line has key and value as bytes; verify reports what is wrong with them
        decoded = None
    if isinstance(decoded, control.EndTransactionMarker):
        epoch = str(decoded.coordinator_epoch)
    if decoded is not None:
        content = json_value(decoded, encode)
    return f',"control_type":{kind},"coordinator_epoch":{epoch},"control_value":{content}'.encode()


def decoded_line(found: DecodedRecord, encode: Encode = encode_auto) -> bytes:
    """The part of a line that only the record of an internal topic has."""
    from kdump.render.messages import message_object  # only internal topics need it

    key, value = (json_value(message_object(each), encode) for each in (found.key, found.value))
    return _decoded_fields(key, value, found.problem)


def _decoded_fields(key: str, value: str, problem: str | None) -> bytes:
    return f',"key_decoded":{key},"value_decoded":{value},"decode_problem":{json_value(problem)}'.encode()


def _number(value: int | None) -> str:
    return "null" if value is None or value == NO_VALUE else str(value)


class JsonRenderer(DumpRenderer, VerifyRenderer, RecoveryRenderer, StatRenderer, ConversionRenderer):
    """Writes JSON Lines."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._encode = ENCODERS[options.bytes_mode]
        self._path: Path | None = None
        self._path_json = ""
        self._partition: tuple[Path, str | None, int | None] | None = None
        self._head = b""
        self._head_of: tuple[int, bool, int, int] | None = None
        self._kind = self._end = b""
        mode = options.bytes_mode
        from kdump.kernel.lines import Lines

        self._lines = Lines("json", mode, replaced if mode == "utf8" else None, self.out.write)

    def _control(self, key: bytes | None, value: bytes | None) -> bytes:
        return _control_fields(key, value, self._encode)

    def _decoded(self, key: bytes | None, value: bytes | None) -> bytes:
        assert self.decoder is not None
        return decoded_line(self.decoder.decode(key, value), self._encode)

    def _decoding(self, batch: Batch, records: DecodedBatch) -> Callable[[bytes | None, bytes | None], bytes] | None:
        """What gives the decoded fields of one record after the other; None where records are shown as they are."""
        if self.value_decoder is None:
            return None if self.decoder is None else self._decoded
        from kdump.render.messages import value_object
        from kdump.storage.records import records as values

        following = values(batch, records)

        def decoded(key: bytes | None, value: bytes | None) -> bytes:
            assert self.value_decoder is not None
            found = self.value_decoder.decode(key, value, next(following).headers)
            key_decoded, value_decoded = (
                json_value(value_object(each), self._encode) for each in (found.key, found.value)
            )
            return _decoded_fields(key_decoded, value_decoded, found.problem)

        return decoded

    def _name(self, path: Path) -> str:
        if path != self._path:
            self._path, self._path_json = path, json_path(path)
        return self._path_json

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        if not self.options.hides_batch(damage):
            self.out.write(batch_line(self._name(path), batch, crc_ok, aborted=self.aborted))

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        self._begin_records(path, topic, partition)
        payload, rows, headers, _ = records
        legacy, is_control, timeless = batch.is_legacy, batch.control, batch.is_kafka07
        head_of = (batch.magic, timeless, batch.attributes, batch.producer_id)
        if head_of != self._head_of:  # rarely: most batches of a file have it in common
            self._head_of = head_of
            producer = "null" if legacy else batch.producer_id
            self._kind = f',"timestamp_type":"{batch.timestamp_type}","key":'.encode()
            self._end = f',"producer_id":{producer},"control":{"true" if is_control else "false"}'.encode()
        position = f',"position":{batch.position},"batch_offset":{_number(batch.base_offset)},'.encode()
        control = self._control if is_control else self._decoding(batch, records)
        messages = None if self.decoder is None else self.messages("json")
        end = self._end + (_ABORTED * self.aborted).encode()
        fixed = (self._head, self._kind, _NO_TIME, position, end)
        done, count = 0, records.records
        while done < count:
            with self.out.in_pieces(len(payload)):
                place = batch.base_offset, batch.base_sequence
                lines, done = self._lines.json(
                    payload, rows, headers, done, *place, control, fixed, timeless, legacy, messages
                )
                self.out.write(lines)
                del lines

    def batches(self, path: Path, topic: str | None, partition: int | None, run: BatchRun) -> int:
        self._begin_records(path, topic, partition)
        name = self._name(path)

        batch_head = None if self.options.hides_batch(None) else f'{{"type":"batch","path":{name},'.encode()
        return self.write_run(self._lines, run, self._head, batch_head, self.messages("json"))

    def _begin_records(self, path: Path, topic: str | None, partition: int | None) -> None:
        """Make what stands before the offset in the lines of a file."""
        if self._partition == (path, topic, partition):
            return
        self._partition = (path, topic, partition)
        topic_json = "null" if topic is None else json_text(topic)
        start = (
            f'{{"type":"record","path":{self._name(path)},"topic":{topic_json},'
            f'"partition":{_number(partition)},"offset":'
        )
        self._head = start.encode()

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        self.entry(path, "gap", {"position": gap.position, "length": gap.length, "reason": gap_reason(gap)})

    def tail(self, path: Path, tail: Tail) -> None:
        self.entry(path, "tail", {"position": tail.position, "length": tail.length, "reason": tail.reason})

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        inner = "".join(f",{json_string(key)}:{json_value(value, self._encode)}" for key, value in fields.items())
        self.out.write(f'{{"type":{json_string(kind)},"path":{self._name(path)}{inner}}}\n')

    def isolation_note(self, note: IsolationNote) -> Iterable[IsolationNote]:
        self.entry(note.path, "isolation", note.fields)
        return ()

    def row(self, row: Row) -> None:
        inner = "".join(f",{json_string(key)}:{json_value(value)}" for key, value in row.fields().items())
        path = "null" if row.path is None else self._name(row.path)
        self.out.write(f'{{"type":"{row.kind}","path":{path}{inner}}}\n')

    def finding(self, finding: Finding) -> None:
        self.entry(finding.path, "finding", finding_fields(finding))

    def all_not_covered(self, findings: Iterable[Finding]) -> None:
        """All of them: they are part of the plan, which --plan compares with the one that is made then."""
        for finding in findings:
            self.not_covered(finding)

    def not_covered(self, finding: Finding) -> None:
        self.entry(finding.path, "not_covered", finding_fields(finding))

    def action(self, action: Action, topic_partition: TopicPartition | None) -> None:
        from kdump.recover.plan_lines import action_fields  # neither a dump nor a verify needs it

        self.entry(action.path, "action", action_fields(action, topic_partition))

    def recovered(self, result: RecoveryResult) -> None:
        from kdump.recover.plan_lines import partition_fields

        self.entry(result.plan.path, "partition", partition_fields(result))

    def run(self, result: RunResult) -> None:
        from kdump.recover.plan_lines import run_fields

        self.entry(result.run.directory, "run", run_fields(result))

    def plan(self, fields: Fields) -> None:
        self._run_line("plan", fields)

    def output_file(self, file: OutputFile) -> None:
        self.entry(file.path, "file", file.fields())

    def convert_summary(self, summary: ConvertSummary, exit_status: int, seconds: float) -> None:
        self._summary("convert", summary.fields(), exit_status, seconds)

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:
        self._summary("verify", summary.fields(), exit_status, summary.seconds)

    def fingerprint_summary(self, summary: FingerprintSummary, exit_status: int, seconds: float) -> None:
        self._summary("verify", summary._asdict(), exit_status, seconds)

    def comparison_summary(self, summary: ComparisonSummary, exit_status: int, seconds: float) -> None:
        self._summary("verify", summary._asdict(), exit_status, seconds)

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:
        self._summary("recover", summary.fields(), exit_status, seconds)

    def exit_summary(self, command: str, exit_status: int, seconds: float) -> None:
        self._summary(command, {}, exit_status, seconds)

    def undo_summary(self, start: RecoverySummary, exit_status: int, seconds: float) -> None:
        self._summary("recover", {"starts": start.verdict.starts, "next": start.next}, exit_status, seconds)

    def record_count(self, records: int) -> None:
        self._run_line("count", {"records": records})

    def match_count(self, count: MatchCount) -> None:
        of: Fields = {"matches": count.matches, "searched": count.searched.records, "exact": count.searched.exact}
        self._run_line("matches", {"what": "batches" if count.batches else "records", **of})

    def _summary(self, command: str, totals: Fields, exit_status: int, seconds: float) -> None:
        end: Fields = {"exit_status": exit_status, "seconds": seconds}
        self._run_line("summary", {"command": command, **totals, **end})

    def _run_line(self, kind: str, fields: Fields) -> None:
        inner = "".join(f",{json_string(key)}:{json_value(value, self._encode)}" for key, value in fields.items())
        self.out.write(f'{{"type":"{kind}","schema":{SCHEMA}{inner}}}\n')
