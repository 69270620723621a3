"""A metadata image as a tree of text lines: sections, what is in them, and its values as words.

    image offset=121 epoch=1 …
    topics
      orders topic_id=… partitions=2
        0 leader=1 leader_epoch=0 replicas=[1,2] isr=[1,2] …
    configurations
      topic orders
        retention.ms=86400000

Values that are null, false or empty are left out where nothing is lost by it. Changes are lines of `+`, `-` or `~`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.named_tuple import NamedTuple
from kdump.render.escaping import Path, path_text
from kdump.render.sentences import iso_time
from kdump.render.words import words

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue


class _Section(NamedTuple):
    """How entries of a kind are shown: below `group` (names of fields, empty for none), each with its `name`."""

    title: str
    name: tuple[str, ...]
    group: tuple[str, ...] = ()
    depth: int = 1


_SECTIONS: Final = {
    "feature": _Section("features", ("name",)),
    "voter": _Section("voters", ("voter_id",)),
    "broker": _Section("brokers", ("broker_id",)),
    "controller": _Section("controllers", ("controller_id",)),
    "topic": _Section("topics", ("topic",)),
    "partition": _Section("topics", ("partition",), depth=2),
    "configuration": _Section("configurations", ("name",), ("resource_type", "resource_name"), 2),
    "client_quota": _Section("client quotas", ("name",), ("entity",), 2),
    "acl": _Section("ACLs", ("principal",), ("resource_type", "pattern_type", "resource_name"), 2),
    "scram_credential": _Section("SCRAM credentials", ("user",)),
    "delegation_token": _Section("delegation tokens", ("token_id",)),
    "producer_ids": _Section("producer ids", ()),
}
_ALWAYS: Final = frozenset(("isr", "leader", "fenced", "next_producer_id", "complete"))
_WITH_ITS_TOPIC: Final = frozenset(("topic", "topic_id"))
_TIMES: Final = ("timestamp", "issue_timestamp", "max_timestamp", "expiration_timestamp")


class ImageTree:
    """Makes the lines of a tree, entry by entry."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._title = ""
        self._group = ""

    def lines(self, path: Path, kind: str, fields: "Fields") -> Iterator[str]:
        """The lines of an entry, with the headings that come before it."""
        if kind == "image":
            self._title = self._group = ""
            yield f"image {path_text(path)} {self._words(self._filled(fields))}"
        elif kind == "change":
            yield self._change(fields)
        else:
            yield from self._entry(kind, fields)

    def _entry(self, kind: str, fields: "Fields") -> Iterator[str]:
        section = _SECTIONS[kind]
        if section.title != self._title:
            self._title, self._group = section.title, ""
            yield section.title
        group = self._label(section.group, fields)
        if section.group and group != self._group:
            self._group = group
            yield f"  {group}"
        hidden = {*section.name, *section.group, "endpoints", "features", "uncommitted", "sensitive"}
        hidden |= _WITH_ITS_TOPIC if kind == "partition" else set()
        shown = {name: value for name, value in self._filled(fields).items() if name not in hidden}
        indent = "  " * section.depth
        name = self._label(section.name, fields)
        if kind in ("configuration", "client_quota"):
            text = next(words({name: fields["value"]}, mode=self._mode))
        else:
            text = " ".join(filter(None, (name, self._words(shown))))
        yield f"{indent}{text}{' UNCOMMITTED' if fields.get('uncommitted') else ''}"
        yield from self._nested(fields, f"{indent}  ")

    def _nested(self, fields: "Fields", indent: str) -> Iterator[str]:
        """The endpoints and the features of a node, each on a line."""
        for endpoint in _structs(fields.get("endpoints")):
            yield f"{indent}endpoint {self._words(endpoint)}"
        features = _structs(fields.get("features"))
        if features:
            ranges = {
                str(each["name"]): f"{self._value(each['min_version'])}..{self._value(each['max_version'])}"
                for each in features
            }
            yield f"{indent}features {self._words(ranges)}"

    def _change(self, fields: "Fields") -> str:
        kind = str(fields["kind"])
        before, after = fields["before"], fields["after"]
        whole = after if isinstance(after, Mapping) else before
        assert isinstance(whole, Mapping)
        section = _SECTIONS[kind]
        identity = [name for name in ("topic", *section.group, *section.name) if name in whole]
        head = " ".join(filter(None, (kind, self._words({name: whole[name] for name in identity}))))
        changed = fields["fields"]
        if isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(changed, list | tuple):
            parts = [
                f"{self._words({str(each): before[str(each)]})}->{self._value(after[str(each)])}" for each in changed
            ]
            return f"~ {head}: {' '.join(parts)}"
        rest = {name: value for name, value in self._filled(whole).items() if name not in identity}
        return f"{'-' if after is None else '+'} {' '.join(filter(None, (head, self._words(rest))))}"

    def _label(self, names: tuple[str, ...], fields: "Fields") -> str:
        found = []
        for name in names:
            value = fields[name]
            if isinstance(value, Mapping):
                found.append(self._words(value))
            elif name == "resource_name" and value == "":
                found.append("(default)")
            else:
                found.append(self._value(value))
        return " ".join(found)

    def _value(self, value: "FieldValue") -> str:
        return " ".join(words({"": value}, mode=self._mode)).removeprefix("=")

    def _words(self, fields: "Fields") -> str:
        return " ".join(words(fields, mode=self._mode))

    def _filled(self, fields: "Fields") -> "Fields":
        """The fields without those that say nothing; times for people in the place of milliseconds."""
        return {
            name: iso_time(value) if name in _TIMES and isinstance(value, int) else value
            for name, value in fields.items()
            if name in _ALWAYS or not (value is None or value is False or value in ("", [], (), {}))
        }


def _structs(value: "FieldValue") -> "list[Mapping[str, FieldValue]]":
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []
