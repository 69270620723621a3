"""Text for pipes: one line a value, words of `name=value`, everything escaped that a terminal would obey.

    file PATH
    batch position=0 size=78 offsets=0..4 count=5 magic=2 codec=none crc=1560500755 ok epoch=0
        CreateTime=2023-11-14T22:13:20.123Z max_timestamp=1700000000123 producer=7/0 sequences=0..4 transactional
      record offset=0 time=2023-11-14T22:13:20.123Z timestamp=1700000000123 key="k" value="v" headers=["h"="x","n"=null]
    batch DAMAGED=batch/crc position=78 …
    gap position=156 length=12 reason=bytes
    tail position=168 length=17 reason=zeros
    path:position: severity code: sentence
    path: truncate 1573-3146 batch/crc: sentence (1573 bytes, 1 batch, 1 record, offsets 29..29)
    path:position: not covered: severity code: sentence
    path: given up: sentence
    path: 7 more of code; --all shows them
    broker: sentence
    lost: sentence
    do: command
    2 files, 10 batches, 100 records, 4000 of 4096 bytes in valid batches: 1 error, 0 warnings, 0 info
    next: command

(a batch is one line, broken here to fit). The words of a line stand in this order:

* batch: `DAMAGED=code` (only where the header cannot be trusted, or the records cannot be read to the end),
  `position`, `size` (bytes), `offsets` (base..last; only `offset` for a wrapper of magic 0 or 1, whose messages are
  not opened), `count`, `magic`, `codec`, `crc` and `ok`, `WRONG` or `unverified`, `epoch` (of the leader), the
  timestamp type with the largest timestamp as a time, `max_timestamp`, and where there are any: `producer` (id/epoch),
  `sequences` (base..last), `transactional`, `control`, `delete_horizon` (a time), `delete_horizon_ms` and `aborted`
  (its transaction was).
* record: `offset`, `time`, `timestamp`, `key`, `value`, and where there are any: `headers`, `sequence`, `control` (the
  type of a control record with what it says in parentheses), `aborted`, `crc=WRONG` (of a message of magic 0 or 1).
  A record of an internal topic has in place of key and value the name of its message with its fields, and `deleted`
  for a tombstone; `undecoded` says why there are key and value after all.
* of a recovery: the action, `from-to` in bytes where it is not about a whole file, the code of the finding that it is
  about. Then come lines about the partition, each with a label: `clean`, `failed`, `running`, `refused`, `more`,
  `start`, `newest`, `found`, `given up`, `damaged`, `committed`, `truncate`, `salvage`, `contradicting batches`,
  `undecided`, `before the start`, `copy only`, `afterwards`, `space`,
  `verified`, `undo`. The line of a run has the label `undone`, `finished` or `failed`. The last line is `next`. The
  verdict, the lines `broker`, `lost` and `do` without a path, comes first of all, or after details of more than 1 MiB.

Times are ISO-8601 in UTC, `-` without one, with the stored milliseconds beside them. Bytes that are valid UTF-8 stand
in double quotes; quotes, backslashes and everything unprintable (control characters, terminal escapes, characters that
change the direction of text) are escaped. Other bytes are `0x` and hexadecimal digits. Null is `null`, empty is `""`.
File names are escaped in the same way, without quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from kdump.kernel.results import NO_VALUE
from kdump.render.base import (
    HELD_BYTES,
    ConversionRenderer,
    RecoveryRenderer,
    RenderOptions,
    StatRenderer,
    VerifyRenderer,
)
from kdump.render.dump_renderer import DumpRenderer
from kdump.render.escaping import Path, cut_lines, path_text, printable, quoted, replaced, terminal_worth
from kdump.render.sentences import (
    comparison_sentences,
    comparison_summary,
    copies_sentence,
    finding_sentence,
    fingerprint_summary,
    folded_sentence,
    gap_reason,
    iso_time,
    match_sentence,
    partition_summary,
    verify_summary,
    verify_verdict,
)
from kdump.render.words import words

if TYPE_CHECKING:
    from kdump.convert.results import ConvertSummary, PartitionConversion
    from kdump.dump.events import BatchRun, MatchCount
    from kdump.format.batch import Batch
    from kdump.format.json_types import Fields, FieldValue
    from kdump.format.naming import TopicPartition
    from kdump.kernel.lines import Lines
    from kdump.recover.plan import Action, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.render.image_tree import ImageTree
    from kdump.replicas.compare import ComparisonSummary, PartitionComparison
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary
    from kdump.stat.rows import Row
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.display import FoldedFindings
    from kdump.verify.findings import Finding
    from kdump.verify.summary import FileSummary, PartitionSummary, VerifySummary


def batch_line(batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> str:
    """The line of a batch, without its line end."""
    wrapper = batch.magic < 2 and batch.base_offset == NO_VALUE
    crc = {True: "ok", False: "WRONG", None: "unverified"}[crc_ok]
    line = (
        f"batch{'' if damage is None else f' DAMAGED={damage}'} position={batch.position} size={batch.size}"
        f" {f'offset={batch.last_offset}' if wrapper else f'offsets={batch.base_offset}..{batch.last_offset}'}"
        f"{'' if batch.count == NO_VALUE else f' count={batch.count}'} magic={batch.magic} codec={batch.codec_name}"
        f" crc={batch.crc} {crc}"
    )
    if batch.partition_leader_epoch != NO_VALUE:
        line += f" epoch={batch.partition_leader_epoch}"
    line += f" {batch.timestamp_type}={iso_time(batch.max_timestamp)} max_timestamp={batch.max_timestamp}"
    if batch.producer_id != -1 or batch.producer_epoch != -1:
        line += f" producer={batch.producer_id}/{batch.producer_epoch}"
    if batch.base_sequence != -1:
        line += f" sequences={batch.base_sequence}..{batch.last_sequence}"
    if batch.transactional:
        line += " transactional"
    if batch.control:
        line += " control"
    horizon = batch.delete_horizon_ms
    if horizon is not None:
        line += f" delete_horizon={iso_time(horizon)} delete_horizon_ms={horizon}"
    return line


def control_word(key: bytes | None, value: bytes | None) -> str:
    """What a control record says: `COMMIT(version=0,coordinator_epoch=3)`; `?` for what cannot be read."""
    from kdump.format import control

    try:
        kind = control.decode_key(key)
    except ValueError:
        return "?"
    try:
        decoded = control.decode_value(kind.type, value)
    except ValueError:
        return f"{kind.name}(?)"
    return kind.name if decoded is None else f"{kind.name}({','.join(_control_fields(decoded))})"


def _control(key: bytes | None, value: bytes | None) -> bytes:
    return f" control={control_word(key, value)}".encode()


def _control_fields(value: tuple[object, ...]) -> Iterator[str]:
    names = getattr(value, "_fields", None)
    for name, item in zip(names or [""] * len(value), value, strict=True):
        prefix = f"{name}=" if name else ""
        if isinstance(item, tuple):
            inner = ",".join(_control_fields(item))
            yield f"{prefix}{{{inner}}}" if hasattr(item, "_fields") else f"{prefix}[{inner}]"
        elif item is not None:
            yield f"{prefix}{quoted(item) if isinstance(item, str) else item}"


def _filled(fields: Fields) -> Fields:
    """The fields without null, and without nested ones that begin with 0 or null and are exact."""
    found: dict[str, FieldValue] = {}
    for name, value in fields.items():
        inner = value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value
        if isinstance(inner, Mapping):
            if inner and (next(iter(inner.values())) not in (None, 0) or inner.get("estimate")):
                found[name] = _filled(inner)
        elif inner is not None:
            found[name] = inner
    return found


def finding_line(finding: Finding) -> str:
    """`path:position: severity code: sentence`, without a line end."""
    position = f"{path_text(finding.path)}:{finding.position}"
    return f"{position}: {finding.severity.word} {finding.code}: {printable(finding_sentence(finding))}"


class TextRenderer(DumpRenderer, VerifyRenderer, RecoveryRenderer, StatRenderer, ConversionRenderer):
    """Writes text, one line a value."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._mode = options.bytes_mode
        self._tree: ImageTree | None = None
        self._most = terminal_worth() if self.out.terminal else 0

    @cached_property
    def _lines(self) -> Lines:
        from kdump.kernel.lines import Lines  # a verify writes no records

        write = None if self.out.terminal else self.out.write  # lines are cut there
        return Lines("text", self._mode, replaced if self._mode == "utf8" else None, write)

    def begin(self, path: Path) -> None:
        self.out.write(f"file {path_text(path)}\n")

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        if not self.options.hides_batch(damage):
            self.out.write(f"{batch_line(batch, damage, crc_ok)}{' aborted' * self.aborted}\n")

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        if self.value_decoder is not None:
            self._decoded(batch, records)
            return
        payload, rows, headers, _ = records
        control, messages = _control if batch.control else None, None
        if self.decoder is not None:
            control, messages = self._words, self.messages("text")
        done, count = 0, records.records
        while done < count:
            with self.out.in_pieces(len(payload)):
                place = batch.base_offset, batch.base_sequence
                lines, done = self._lines.text(payload, rows, headers, done, *place, control, messages, self.aborted)
                self.out.write(cut_lines(bytes(lines), self._most) if self.out.terminal else lines)
                del lines  # so that its buffer is used again

    def batches(self, path: Path, topic: str | None, partition: int | None, run: BatchRun) -> int:
        if self.out.terminal:  # which gets no more than the beginning of a long line
            return 0
        batch_head = None if self.options.hides_batch(None) else b""
        return self.write_run(self._lines, run, b"", batch_head, self.messages("text"))

    def _words(self, key: bytes | None, value: bytes | None) -> bytes:
        from kdump.render.messages import record_words  # only internal topics need it

        assert self.decoder is not None
        return record_words(self.decoder.decode(key, value), key, value, self._mode).encode()

    def _decoded(self, batch: Batch, records: DecodedBatch) -> None:
        from kdump.render.decoded import decoded_words  # only what is decoded needs it
        from kdump.storage.records import records as values

        for record in values(batch, records):
            words_of_it = decoded_words(None, self.value_decoder, record, self._mode)
            line = (
                f"  record offset={record.offset} time={iso_time(record.timestamp)} timestamp={record.timestamp}"
                f" {words_of_it}{' aborted' * self.aborted}\n"
            )
            self.out.write(cut_lines(line.encode(), self._most) if self.out.terminal else line)

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        self.out.write(f"gap position={gap.position} length={gap.length} reason={gap_reason(gap)}\n")

    def tail(self, path: Path, tail: Tail) -> None:
        self.out.write(f"tail position={tail.position} length={tail.length} reason={tail.reason}\n")

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        self.out.write(f"{printable(kind)} {' '.join(words(fields, mode=self._mode))}\n")

    def image_line(self, path: Path, kind: str, fields: Fields) -> None:
        if self._tree is None:
            from kdump.render.image_tree import ImageTree

            self._tree = ImageTree(self._mode)
        self.out.write("".join(f"{line}\n" for line in self._tree.lines(path, kind, fields)))

    def match_count(self, count: MatchCount) -> None:
        self.out.write(f"{match_sentence(count)}\n")

    def row(self, row: Row) -> None:
        # what is not known, and volumes and distributions of nothing, would hide what is there
        named = words(_filled({"path": row.path, **row.fields()}), mode=self._mode)
        self.out.write(f"{row.kind} {' '.join(named)}\n")

    def file(self, path: Path, summary: FileSummary) -> None:
        self.out.write(f"file {path_text(path)} {' '.join(words(summary.fields(), mode=self._mode))}\n")

    def partition(self, path: Path, summary: PartitionSummary) -> None:
        self.out.write(f"{path_text(path)}: {printable(partition_summary(summary))}\n")

    def comparison(self, compared: PartitionComparison) -> None:
        name = compared.topic_partition
        for sentence in comparison_sentences(compared):
            self.out.write(f"{printable(f'{name.topic}-{name.partition}: {sentence}')}\n")

    def finding(self, finding: Finding) -> None:
        self.out.write(finding_line(finding) + "\n")

    def folded(self, folded: FoldedFindings) -> None:
        if folded.first is not None:
            self.out.write(f"{finding_line(folded.first)}; {printable(folded_sentence(folded))}\n")
            return
        self.out.write(f"{path_text(folded.path)}: {printable(folded_sentence(folded))}\n")

    def action(self, action: Action, topic_partition: TopicPartition | None) -> None:
        from kdump.render import recovery  # neither a dump nor a verify needs it

        self.out.write(f"{path_text(action.path)}: {printable(recovery.action_words(action))}\n")

    def not_covered(self, finding: Finding) -> None:
        from kdump.render import recovery

        self.out.write(
            f"{path_text(finding.path)}:{finding.position}: not covered: {finding.severity.word} {finding.code}:"
            f" {printable(recovery.not_covered_words(finding))}\n"
        )

    def recovery(self, result: RecoveryResult) -> None:
        # after applying, what is left includes what was not covered
        from kdump.render import recovery

        plan = result.plan if not result.applied else result.plan._replace(not_covered=())
        first, then = recovery.split(recovery.sentences(result))
        self._labelled(plan.path, first)
        for action in recovery.listed_actions(plan.actions):
            self.action(action, plan.topic_partition)
        self.all_not_covered(plan.not_covered)
        for finding in result.left:
            self.finding(finding)
        self._labelled(plan.path, then)

    def _labelled(self, path: Path, said: Iterable[tuple[str, str]]) -> None:
        for label, sentence in said:
            self.out.write(f"{path_text(path)}: {label}: {printable(sentence)}\n")

    def run(self, result: RunResult) -> None:
        from kdump.render import recovery

        self.out.write(f"{path_text(result.run.directory)}: {printable(recovery.run_words(result))}\n")

    def conversion(self, value: PartitionConversion) -> None:
        from kdump.render import conversions  # only a conversion needs it

        self.out.write(f"{path_text(value.path)}: {conversions.partition_words(value)}\n")
        for note in value.notes:
            self.out.write(f"{path_text(value.path)}: note: {printable(note)}\n")

    def convert_summary(self, summary: ConvertSummary, exit_status: int, seconds: float) -> None:
        from kdump.render import conversions

        self.out.write(f"{conversions.convert_summary(summary)}\n")

    def hold(self) -> None:
        self.out.hold(HELD_BYTES)

    def _verdict(self, lines: Iterable[tuple[str, str]]) -> None:
        """Write the verdict before the details, where these are not written."""
        with self.out.release():
            self.out.write("".join(f"{label}: {printable(sentence)}\n" for label, sentence in lines))

    def fingerprint_summary(self, summary: FingerprintSummary, exit_status: int, seconds: float) -> None:
        self.out.write(f"{printable(fingerprint_summary(summary))}\n")

    def comparison_summary(self, summary: ComparisonSummary, exit_status: int, seconds: float) -> None:
        self.out.write(f"{comparison_summary(summary)}\n")

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:
        self._verdict(verify_verdict(summary))
        self.out.write(f"{verify_summary(summary)}\n")
        if (copies := copies_sentence(summary)) is not None:
            self.out.write(f"{copies}\n")
        if summary.next is not None:
            self.out.write(f"next: {printable(summary.next)}\n")

    def undo_summary(self, start: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        self._verdict(recovery.verdict_lines(start))
        if start.next is not None:
            self.out.write(f"next: {printable(start.next)}\n")

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        self._verdict(recovery.verdict_lines(summary))
        self.out.write(f"{recovery.verdict(summary)}\n")
        if summary.next is not None:
            self.out.write(f"next: {printable(summary.next)}\n")
