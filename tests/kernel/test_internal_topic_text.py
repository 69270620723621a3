"""The compiled lines of messages of internal topics against those that their decoders give, on records of every type
and version, and on damaged ones."""

from __future__ import annotations

import io
import random
from pathlib import Path
from unittest import mock

import pytest

from kdump.dump.dump import DumpOptions, dump_logs
from kdump.format.internal_topics.decoders import decoder_of
from kdump.format.message_schema import parse_table
from kdump.kernel.internal_topic_text import KINDS, MOST_LEVELS, MessageFormatter
from kdump.kernel.message_program import MessageField, MessageProgram, MessageStruct, MessageText
from kdump.render import BYTES_MODES, RenderOptions, renderer
from kdump.render.dump_renderer import DumpRenderer
from kdump.storage import discovery
from kdump.storage.partition import LogFile
from support import build
from support.cases import each
from support.coordinator_records import MessageWriter, commit_key, commit_value
from support.internal_records import (
    DecodedForms,
    InternalRecord,
    damaged,
    groups_of_consumers,
    logs,
    random_records,
    real,
)
from support.laws import examples, sampled
from support.messages import schemas

FORMS = [DecodedForms(style, mode) for style in ("text", "json") for mode in BYTES_MODES]
LEFT = {"ClientQuotaRecord"}
"""What has floating point numbers."""


def compare(form: DecodedForms, record: InternalRecord) -> bool:
    """Whether the kernel wrote the record, which it may leave."""
    found = form.compiled(record)
    if found is not None:
        assert found == form.plain(record), (form.style, form.mode, record)
    return found is not None


@pytest.mark.laws
def test_every_type_and_version() -> None:
    rng = random.Random(1)
    made = random_records(rng, examples(8)) + groups_of_consumers(rng, examples(40))
    unread: dict[str, list[bool]] = {}
    for number, record in enumerate(made):
        decoder = decoder_of(record.topic)
        assert decoder is not None
        found = decoder.decode(record.key, record.value)
        assert found.value is not None
        for form in (FORMS[number % 8], FORMS[(number + 4) % 8]):
            wrote = compare(form, record)
            if form.mode != "utf8":  # in which the kernel leaves malformed text
                unread.setdefault(found.value.name, []).append(wrote)
    assert {name for name, wrote in unread.items() if not any(wrote)} == LEFT
    of_all = [wrote for name, several in unread.items() if name not in LEFT for wrote in several]
    assert sum(of_all) > 0.9 * len(of_all)


def name_of(record: InternalRecord) -> str | None:
    decoder = decoder_of(record.topic)
    value = None if decoder is None else decoder.decode(record.key, record.value).value
    return None if value is None else value.name


@each("path", sampled(logs(), 3), ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_what_brokers_wrote(path: Path) -> None:
    for number, record in enumerate(real([path])[:200]):
        form = FORMS[number % 8]
        assert compare(form, record) or form.mode == "utf8" or name_of(record) in LEFT


@pytest.mark.laws
def test_damaged_records() -> None:
    rng = random.Random(2)
    whole = random_records(rng, 1) + groups_of_consumers(rng, 2)
    wrote = 0
    for number in range(examples(20_000)):
        wrote += compare(FORMS[number % 8], damaged(rng, rng.choice(whole)))
    assert wrote > examples(20_000) / 10


def test_every_cut_of_a_record() -> None:
    rng = random.Random(3)
    for record in random_records(rng, 1)[::7] + groups_of_consumers(rng, 1):
        assert record.value is not None
        for size in range(min(len(record.value), 60)):
            for form in FORMS[::4]:
                compare(form, record._replace(value=record.value[:size]))
                compare(form, record._replace(key=record.key and record.key[: size // 2]))


@pytest.mark.parametrize(
    "value",
    [
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\1\5\0\0\0\0\1",  # as Kafka writes it
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\1\4\0\0\0\1",  # a tag whose size is not that of its field
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\1\5\0\0\0\1",  # ... and goes beyond the value
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\2\1\4\0\0\0\1\1\4\0\0\0\2",  # twice
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\1\4\xff\xff\xff\xfe",  # its default
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\7\1\0",  # a tag of another version
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\x60\1\0",  # an unknown one
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\0\6\2\0\0\0\1\1",  # bytes after the field
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\0x",  # ... after the message
        b"\1\5\x80\0\0\0\0\7" + bytes(16) + b"\0",  # a longer varint than needed
        b"\1\5\0\0\0\0\7" + bytes(16) + b"\1\0\5\xff\xff\xff\xff\x0f",  # a count of billions
        b"\2\5\0\0\0\0\7" + bytes(16) + b"\0",  # another frame
        b"\1\x7f\0",
        b"\1\5\x7f",
        b"",
        None,
    ],
)
def test_odd_values_of_a_frame(value: bytes | None) -> None:
    for form in FORMS:
        compare(form, InternalRecord("__cluster_metadata", None, value))


@pytest.mark.parametrize(
    "name", ["", " ", "a b", '"', "\\", "\x1b[2J", "\u202e", "é", "漢字", "x" * 300, "\ud800\udfff"]
)
def test_names_of_groups(name: str) -> None:
    text = name.encode("utf-8", "surrogatepass")
    key = b"\0\1" + len(text).to_bytes(2, "big") + text + b"\0\1t\0\0\0\1"
    for form in FORMS:
        for value in (None, commit_value(-1, time_ms=-1, metadata="m m"), commit_value(7, expires_ms=1 << 60)):
            assert compare(form, InternalRecord("__consumer_offsets", key, value)) == ("\ud800" not in name)


# --- in lines ---------------------------------------------------------------------------------------------------------


def leaves_all(self: DumpRenderer, style: str) -> MessageFormatter | None:
    if self.counting_decoder is None:
        return None
    nothing = MessageText(b"", 0, b"")
    return MessageFormatter(
        style,
        "auto",
        MessageProgram((), (MessageStruct(0, 0, b"", False),), {255: nothing}, {(255, 0): nothing}, b"", b""),
    )


def dumped(path: Path, style: str, *, runs: bool, mode: str = "auto", terminal: bool = False) -> bytes:
    class Stream(io.BytesIO):
        def isatty(self) -> bool:
            return terminal

    files = [file for file in discovery.log_files([str(path)]) if isinstance(file, LogFile)]
    with renderer(style, out := Stream(), RenderOptions(bytes_mode=mode)) as to:
        list(to.show(dump_logs(files, DumpOptions(runs=runs, marks_aborted=True, decode="auto"))))
    return out.getvalue()


@each("path", sampled(sorted({path.parent for path in logs()}), 5), ids=str)
def test_lines_of_logs(path: Path) -> None:
    for style in ("text", "json"):
        with mock.patch.object(DumpRenderer, "messages", leaves_all):
            wanted = dumped(path, style, runs=False)
        assert dumped(path, style, runs=True) == dumped(path, style, runs=False) == wanted


def test_lines_with_what_cannot_be_decoded(tmp_path: Path) -> None:
    writer, key, path = MessageWriter("consumer_offsets"), commit_key("g", "t", 1), tmp_path / "__consumer_offsets-1"
    path.mkdir()
    good, bad = build.record(key, commit_value(5)), build.record(b"\0\x63\0\1g", b"\xff")
    odd = build.record(writer.key("GroupMetadata", {"group": "g"}), writer.value("GroupMetadata", 9, {}))
    other = build.record(None, None, headers=[(b"h", b"v")])
    kinds = [[good] * 3, [good, bad, good], [odd], [other, other], [good], [bad, odd], [good, build.record(key, None)]]
    log = b"".join(
        build.batch(items, base_offset=10 * number, codec=("none", "zstd")[number % 2])
        for number, items in enumerate(kinds)
    )
    (path / "00000000000000000000.log").write_bytes(log + build.batch([good] * 4200, base_offset=100))
    for style in ("text", "json"):
        with mock.patch.object(DumpRenderer, "messages", leaves_all):
            wanted = dumped(path, style, runs=False)
        assert dumped(path, style, runs=True) == dumped(path, style, runs=False) == wanted
        assert wanted.count(b"6 records cannot be decoded") == 1
    with mock.patch.object(DumpRenderer, "messages", leaves_all):
        wanted = dumped(path, "text", runs=False, terminal=True)
    assert dumped(path, "text", runs=True, terminal=True) == wanted


# --- programs ---------------------------------------------------------------------------------------------------------


def program(*fields: MessageField, structs: tuple[MessageStruct, ...] | None = None) -> MessageProgram:
    made = structs or (MessageStruct(0, len(fields), b"()", True),)
    text = MessageText(b"<", len(made) - 1, b">")
    return MessageProgram(fields, made, {0: text}, {(0, 0): text}, b"", b"")


def test_a_program_that_refers_to_what_is_not_there_is_refused() -> None:
    number, nested = MessageField("int8"), [MessageStruct(0, 0, b"", False)]
    for wrong in (
        program(MessageField("array", sub=0)),
        program(MessageField("array", sub=1)),
        program(MessageField("array", sub=-1)),
        program(MessageField("struct", sub=0)),
        program(MessageField("struct", sub=-1)),
        program(MessageField("embedded", sub=0, versions=1)),
        program(MessageField("embedded", sub=-1)),
        program(MessageField("int8", tag=32)),
        program(MessageField("float64")),
        program(number, structs=(MessageStruct(0, 2, b"", False),)),
        program(number, structs=(MessageStruct(-1, 1, b"", False),)),
        program(number)._replace(keys={0: MessageText(b"", 1, b"")}),
        program(number)._replace(values={(0, 0): MessageText(b"", -1, b"")}),
        program(number)._replace(keys={256: MessageText(b"", 0, b"")}),
        program(number)._replace(keys={}, values={}),
    ):
        with pytest.raises(ValueError):
            MessageFormatter("text", "auto", wrong)
    for wrong_style in (("yaml", "auto"), ("text", "octal")):
        with pytest.raises(ValueError):
            MessageFormatter(*wrong_style, program(number))
    fields = tuple(MessageField("struct", sub=level) for level in range(MOST_LEVELS))
    nested += [MessageStruct(level, 1, b"", False) for level in range(MOST_LEVELS)]
    assert MessageFormatter("text", "auto", program(*fields[:-1], structs=tuple(nested[:-1])))
    with pytest.raises(ValueError, match="too many structs"):
        MessageFormatter("text", "auto", program(*fields, structs=tuple(nested)))


def test_the_kinds_of_fields_are_those_of_the_tables() -> None:
    types = {field.type for module in ("consumer_offsets", "cluster_metadata") for schema in schemas(module).values()
             for field in schema.fields if field.type.islower()}  # fmt: skip
    assert types - {*KINDS} == {"float64"}
    assert parse_table("Thing 3 0 0+\n id int32 0+\n")["Thing"].fields[0].type in KINDS
