"""Metadata images against those that Kafka's own classes build from the same records."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import ModuleType

from kdump.broker.metadata_image.config_names import BROKER, GROUP, METADATA_VERSIONS, TOPIC
from kdump.broker.metadata_image.image_entries import ImageEntry, entries_of, is_sensitive
from kdump.broker.metadata_image.image_reader import read_image
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.metadata_log import find_metadata_log
from kdump.format.internal_topics.decoders import decoder_of
from support.metadata_logs import History, write_log

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "fixtures"
HISTORIES = int(os.environ.get("KDUMP_IMAGE_HISTORIES", "200"))


def job(directory: Path, last: int, snapshot_file: Path | None = None, end_offset: int = 0) -> str:
    segments = sorted(directory.glob("*.log"))
    return "\t".join(map(str, ("-" if snapshot_file is None else snapshot_file, end_offset, last, *segments))) + "\n"


def theirs(kafka: ModuleType, jobs: list[str]) -> list[tuple[list[ImageEntry], int]]:
    """The entries of each image of Kafka's classes, without what control records say, and the number of faults."""
    done = kafka.run_source(kafka.NEWEST, HERE / "MetadataImages.java", stdin="".join(jobs).encode())
    decoder = decoder_of("__cluster_metadata")
    assert decoder is not None
    found, image, faults = [], MetadataImage(), 0
    for line in done.stdout.decode().splitlines():
        if line == "end":
            found.append((plain(image), faults))
            image, faults = MetadataImage(), 0
        elif line.startswith("fault"):
            # what could not be replayed; a delta with a topic that is not there cannot be applied either
            faults += line.startswith("fault Error loading")
        else:
            message = decoder.decode(None, bytes.fromhex(line)).value
            assert message is not None
            image.replay(message)
    return found


def plain(image: MetadataImage) -> list[ImageEntry]:
    return [each for each in entries_of(image) if each.kind != "voter" and each.key != ("kraft.version",)]


def test_the_fixtures_at_every_offset(kafka: ModuleType) -> None:
    jobs, ours = [], []
    for case in ("image", "metadata", "log-directory"):
        directory = FIXTURES / case / "__cluster_metadata-0"
        log = find_metadata_log(str(directory))
        end = read_image(log).offset
        for offset in range(0, end + 1, 1 if case == "image" else 7):
            jobs.append(job(directory, offset))
            ours.append(plain(read_image(log, offset).image))
        for each in log.snapshots[:1]:
            jobs.append(job(directory, end, Path(each.file.path), each.end_offset))
            ours.append(plain(read_image(log).image))
    assert [(entries, 0) for entries in ours] == theirs(kafka, jobs)
    assert len(ours) > 150


def test_random_histories(kafka: ModuleType, tmp_path: Path) -> None:
    jobs, ours = [], []
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        count = rng.randrange(10, 80)
        sound = seed % 2 == 0
        changes = History(rng).sound(count) if sound else History(rng).changes(count)
        # Kafka makes a delta of each batch: only what fits is the same however the records lie in batches
        directory = write_log(tmp_path / f"h{seed}" / "__cluster_metadata-0", changes, per_batch=1)
        jobs.append(job(directory, count))
        found = read_image(find_metadata_log(str(directory)))
        ours.append((plain(found.image), len(found.problems)))
    for mine, his in zip(ours, theirs(kafka, jobs), strict=True):
        assert mine == his
    assert sum(faults for _, faults in ours) > HISTORIES


def test_what_is_sensitive(kafka: ModuleType) -> None:
    program = HERE / "ConfigNames.java"
    names = {"BROKER": BROKER, "TOPIC": TOPIC, "GROUP": GROUP}
    printed = kafka.run_source(kafka.NEWEST, program).stdout.decode().splitlines()
    rows = [line.split() for line in printed]
    for kind, known in names.items():
        assert {row[1] for row in rows if row[0] == kind.lower()} == known
    assert {int(row[1]): row[2] for row in rows if row[0] == "version"} == METADATA_VERSIONS
    everything = sorted(
        {*BROKER, *TOPIC, *GROUP, "ssl.key.password", "sasl.jaas.config", "unknown", "ssl.keystore.key"}
    )
    listeners = [
        f"listener.name.{where}.{name}" for name in everything for where in ("l", "l.plain", "l.scram-sha-256")
    ]
    questions = [(kind, name) for kind in names for name in (*everything, *listeners)]
    questions += [("CLIENT_METRICS", "metrics"), ("BROKER_LOGGER", "x"), ("UNKNOWN", "retention.ms")]
    lines = "".join(f"{kind} {name}\n" for kind, name in questions).encode()
    answers = kafka.run_source(kafka.NEWEST, program, "ask", stdin=lines).stdout.decode().split()
    ours = [not is_sensitive(kind.lower().replace("_", "-"), name) for kind, name in questions]
    wrong = [question for question, mine, his in zip(questions, ours, answers, strict=True) if mine != (his == "true")]
    assert not wrong
