"""Metadata images against what Kafka's tools say: its metadata shell of a snapshot, the others of a running cluster."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kdump.broker.metadata_image.cluster_image import ListenerEndpoint, SupportedFeature
from kdump.broker.metadata_image.config_names import METADATA_VERSIONS
from kdump.broker.metadata_image.image_entries import entries_of
from kdump.broker.metadata_image.image_reader import read_image
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.metadata_log import find_metadata_log
from kdump.broker.metadata_image.topics_image import PartitionRegistration

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "fixtures"
MAKE = FIXTURES / "make"
SHELL = "org.apache.kafka:kafka-shell:4.3.1"
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 9000,
    "log.index.size.max.bytes": 2048,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def java_list(items: Sequence[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def optional(text: str | None) -> str:
    return "Optional.empty" if text is None else f"Optional[{text}]"


def partition_text(of: PartitionRegistration) -> str:
    return (
        f"PartitionRegistration(replicas={java_list(of.replicas)}, directories={java_list(of.directories)},"
        f" isr={java_list(of.isr)}, removingReplicas={java_list(of.removing_replicas)},"
        f" addingReplicas={java_list(of.adding_replicas)}, elr={java_list(of.eligible_leader_replicas)},"
        f" lastKnownElr={java_list(of.last_known_elr)}, leader={of.leader},"
        f" leaderRecoveryState={of.leader_recovery_state}, leaderEpoch={of.leader_epoch},"
        f" partitionEpoch={of.partition_epoch})"
    )


def node_text(endpoints: Sequence[ListenerEndpoint], features: Sequence[SupportedFeature]) -> tuple[str, str]:
    listeners = java_list(
        [
            f"Endpoint(listenerName='{each.name}', securityProtocol={each.security_protocol}, host='{each.host}',"
            f" port={each.port})"
            for each in endpoints
        ]
    )
    ranges = ", ".join(f"{each.name}: {each.min_version}-{each.max_version}" for each in features)
    return listeners, ranges


def leaves(image: MetadataImage) -> Iterator[tuple[str, str]]:
    """What the shell says of the nodes without children, by their paths."""
    for name, topic in image.topics.by_name.items():
        yield f"topics/byName/{name}/id", topic.id
        yield f"topics/byName/{name}/name", name
        for number, partition in topic.partitions.items():
            yield f"topics/byName/{name}/{number}", partition_text(partition)
    for broker in image.cluster.brokers.values():
        listeners, ranges = node_text(broker.endpoints, broker.features)
        flags = [str(flag).lower() for flag in (broker.fenced, broker.in_controlled_shutdown, False)]
        yield (
            f"cluster/brokers/{broker.id}",
            (
                f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, incarnationId={broker.incarnation_id},"
                f" listeners={listeners}, supportedFeatures={{{ranges}}}, rack={optional(broker.rack)},"
                f" fenced={flags[0]}, inControlledShutdown={flags[1]}, isMigratingZkBroker={flags[2]},"
                f" directories={java_list(broker.directories)},"
                f" cordonedDirectories={java_list(broker.cordoned_directories)})"
            ),
        )
    kinds = {"topic": "TOPIC", "broker": "BROKER", "group": "GROUP", "client-metrics": "CLIENT_METRICS"}
    for resource, values in image.configurations.by_resource.items():
        where = ":".join(filter(None, (kinds[resource.type], resource.name)))
        for name, value in values.items():
            yield f"configs/{where}/{name}", value
    for name, level in image.features.finalized.items():
        yield f"features/finalized_{name}", str(level)
    assert image.features.metadata_version is not None
    yield "features/metadataVersion", optional(METADATA_VERSIONS[image.features.metadata_version])
    for acl_id, acl in image.acls.acls.items():
        yield (
            f"acls/byId/{acl_id}",
            (
                f"StandardAcl[resourceType={acl.resource_type}, resourceName={acl.resource_name},"
                f" patternType={acl.pattern_type}, principal={acl.principal}, host={acl.host},"
                f" operation={acl.operation}, permissionType={acl.permission_type}]"
            ),
        )
    for (mechanism, user), each in image.scram.credentials.items():
        yield (
            f"scram/{mechanism}/{user}",
            (
                f"ScramCredentialData(salt={each.salt.hex()}, storedKey={each.stored_key.hex()},"
                f" serverKey={each.server_key.hex()}, iterations={each.iterations})"
            ),
        )
    yield "producerIds/nextProducerId", str(image.producer_ids.next_producer_id)


def test_the_metadata_shell(kafka: ModuleType) -> None:
    try:
        kafka.classpath(kafka.NEWEST, extra=(SHELL,))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        pytest.skip(f"Maven cannot deliver {SHELL}: {error}")
    path = find_metadata_log(str(FIXTURES / "image")).snapshots[0].file.path
    image = read_image(find_metadata_log(path)).image
    ours = dict(leaves(image))

    def shell(*words: str) -> list[str]:
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
        # the shell does not always wait until it has read the snapshot
        for _ in range(10):
            done = kafka.java(
                *(kafka.NEWEST, "org.apache.kafka.shell.MetadataShell", "--snapshot", path, *words),
                flags=quiet,
                extra=(SHELL,),
            )
            if b"No such file or directory." not in done.stdout:
                break
        return [line for line in done.stdout.decode().splitlines() if line]

    parts = ("topics/byName", "cluster/brokers", "configs", "features", "acls", "scram", "producerIds")
    for _ in range(10):
        found = shell("find", *(f"/image/{part}" for part in parts))
        nodes = {line.removeprefix("/image/") for line in found}
        if set(ours) <= nodes:
            break
    assert {node for node in nodes if not any(other.startswith(f"{node}/") for other in nodes)} == set(ours)
    paths = sorted(ours)
    assert dict(zip(paths, shell("cat", *(f"/image/{each}" for each in paths)), strict=True)) == ours
    assert len(ours) > 40


class Tools:
    """The tools of a running cluster."""

    def __init__(self, kafka: ModuleType, bootstrap: str) -> None:
        self._kafka, self._bootstrap = kafka, bootstrap

    def __call__(self, main: str, *words: str) -> str:
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
        done = self._kafka.java(self._kafka.NEWEST, main, "--bootstrap-server", self._bootstrap, *words, flags=quiet)
        return str(done.stdout.decode())

    def topics(self) -> dict[tuple[str, str, int], tuple[int, list[int], set[int]]]:
        text, ids = self("org.apache.kafka.tools.TopicCommand", "--describe"), {}
        for match in re.finditer(r"^Topic: (\S+)\tTopicId: (\S+)", text, re.MULTILINE):
            ids[match[1]] = match[2]
        lines = re.finditer(
            r"^\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\S+)\tReplicas: (\S*)\tIsr: (\S*)\t", text, re.MULTILINE
        )
        return {
            (each[1], ids[each[1]], int(each[2])): (
                int(each[3]),
                [int(word) for word in each[4].split(",")],
                {int(word) for word in each[5].split(",")},
            )
            for each in lines
        }

    def configurations(self) -> set[tuple[str, str, str, str, bool]]:
        found = set()
        for kind in ("topics", "brokers", "groups", "client-metrics"):
            name = ""
            for line in self("kafka.admin.ConfigCommand", "--describe", "--entity-type", kind).splitlines():
                if match := re.match(r"Dynamic configs for \S+ (\S+) are:", line):
                    name = match[1]
                elif line.startswith("Default configs for brokers"):
                    name = ""
                elif match := re.match(r"  (\S+?)=(.*) sensitive=(true|false) synonyms=", line):
                    found.add((kind.removesuffix("s") if kind != "client-metrics" else kind, name, *match.groups()))
        return {(*each[:4], each[4] == "true") for each in found}

    def quotas(self) -> tuple[set[tuple[str, str, float]], set[tuple[str, str, int]]]:
        quotas, credentials = set(), set()
        for kinds in (("users",), ("clients",), ("users", "clients"), ("ips",)):
            words = [word for kind in kinds for word in ("--entity-type", kind)]
            for line in self("kafka.admin.ConfigCommand", "--describe", *words).splitlines():
                head, _, values = line.rpartition(" are ")
                if line.startswith("Quota configs for "):
                    for value in values.split(", "):
                        quotas.add((head.removeprefix("Quota configs for "), *number_of(value)))
                elif match := re.match(r"SCRAM credential configs for user-principal '(.*)'", head):
                    for mechanism, count in re.findall(r"(SCRAM-SHA-\d+)=iterations=(\d+)", values):
                        credentials.add((match[1], mechanism, int(count)))
        return quotas, credentials

    def acls(self) -> set[str]:
        """Each resource and what holds for it, as the tool writes them."""
        found, resource = set(), ""
        for line in self("org.apache.kafka.tools.AclCommand", "--list").splitlines():
            if line.startswith("Current ACLs for resource"):
                resource = line.partition("`")[2].partition("`")[0]
            elif line.strip():
                found.add(f"{resource} {line.strip()}")
        return found


def number_of(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


def entity_text(entity: tuple[tuple[str, str | None], ...]) -> str:
    """The entity of a quota as ConfigCommand writes it."""
    words = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
    parts = dict(entity)
    return ", ".join(
        f"the default {words[kind]}" if parts[kind] is None else f"{words[kind]} '{parts[kind]}'"
        for kind in words
        if kind in parts
    )


def test_the_tools_of_a_running_cluster(kafka: ModuleType, tmp_path: Path) -> None:
    with (
        kafka.kraft_broker(tmp_path / "one", settings=SETTINGS) as first,
        kafka.kraft_broker(tmp_path / "two", settings=SETTINGS, beside=first, voter=True),
    ):
        kafka.run_source(kafka.NEWEST, MAKE / "Metadata.java", first.bootstrap, "write")
        tools = Tools(kafka, first.bootstrap)
        found = read_image(find_metadata_log(str(first.logs)))
        image = found.image
        assert (found.is_complete, found.problems, found.source) == (True, (), "only-voter")
        assert tools.topics() == {
            (name, topic.id, number): (each.leader, list(each.replicas), set(each.isr))
            for name, topic in image.topics.by_name.items()
            for number, each in topic.partitions.items()
        }
        values = [each.fields for each in entries_of(image) if each.kind == "configuration"]
        ours = {
            tuple("null" if name == "value" and row["sensitive"] else row[name] for name in row)  # type: ignore[misc]
            for row in values
        }
        assert tools.configurations() == ours
        quotas = {
            (entity_text(entity), *pair) for entity, of in image.client_quotas.by_entity.items() for pair in of.items()
        }
        credentials = {(user, kind, each.iterations) for (kind, user), each in image.scram.credentials.items()}
        assert tools.quotas() == (quotas, credentials)
        assert tools.acls() == {
            f"ResourcePattern(resourceType={each.resource_type}, name={each.resource_name},"
            f" patternType={each.pattern_type}) (principal={each.principal}, host={each.host},"
            f" operation={each.operation}, permissionType={each.permission_type})"
            for each in image.acls.acls.values()
        }
        levels = dict(
            re.findall(
                r"Feature: (\S+).*FinalizedVersionLevel: (\S+)",
                tools("org.apache.kafka.tools.FeatureCommand", "describe"),
            )
        )
        features = {name: str(level) for name, level in image.features.finalized.items()}
        features["kraft.version"] = str(image.voters.kraft_version)
        features["metadata.version"] = METADATA_VERSIONS[image.features.metadata_version or 0]
        assert {name: level for name, level in levels.items() if level != "0"} == features
        status = tools("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
        voters = json.loads(status.partition("CurrentVoters:")[2].partition("\n")[0])
        assert [(each["id"], each["directoryId"]) for each in voters] == [
            (each.voter_id, each.voter_directory_id) for each in image.voters.voters or ()
        ]
