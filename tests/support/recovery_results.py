"""Plans and results that are made by hand, for what shows them."""

from __future__ import annotations

from typing import Any

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.naming import TopicPartition
from kdump.recover.plan import Action, Damaged, FileContent, GivenUp, Lost, Plan, RecoverOptions
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from kdump.verify.findings import Finding, make_finding

DIRECTORY = "/data/orders-3"
NOON_MS = 1_700_000_000_123
FIRST, SECOND, THIRD = (f"{DIRECTORY}/{offset:020d}" for offset in (0, 10, 20))


def seen(code: str, path: str, position: int, length: int, broker: str | None, **data: Any) -> Finding:
    built = make_finding(code, path, position, length, offset=3, **data)
    return Finding(**{name: getattr(built, name) for name in Finding.__slots__} | {"broker": broker})


OLD = seen("batch/crc", f"{FIRST}.log", 130, 84, "ignores", computed=1, stored=2)
REFUSED = seen("file/name", "/data/orders 3/x.log", 0, 0, "refuses", problem="number")
GIVEN_UP = GivenUp(
    batches=12,
    records=14,
    bytes=18_876,
    offsets=((15, 28),),
    first_timestamp=NOON_MS,
    max_timestamp=NOON_MS + 60_000,
    producers=(1, 2),
    transactions=((2, 17),),
)
LOST = Lost(GIVEN_UP, Damaged(((29, 33),), 158, exact=False), True, ((15, 27),))
NO_LOSS = Lost(committed=False)


def plan(**fields: Any) -> Plan:
    """A truncation of the second of three segments, as a log directory with a checkpoint asks for it."""
    second, third = "00000000000000000010", "00000000000000000020"
    built = Plan(
        path=DIRECTORY,
        topic_partition=TopicPartition("orders", 3),
        options=RecoverOptions(now_ms=NOON_MS),
        actions=(
            Action("truncate", f"{SECOND}.log", "batch/crc", 7865, 15_730, None, 7865, 4, 4, 15, 19),
            Action("rebuild", f"{SECOND}.index", "batch/crc"),
            Action("delete", f"{THIRD}.log", "batch/crc", 0, 11_011, None, 11_011, 8, 10, 20, 29),
            Action("delete", f"{THIRD}.index", "batch/crc", bytes=16),
            Action("write", f"{DIRECTORY}/leader-epoch-checkpoint", "epoch/checkpoint", bytes=12),
        ),
        after={f"{second}.log": FileContent((Piece(f"{second}.log", 0, 7865),)), f"{third}.log": None},
        files={f"{second}.log": Stamp(15_730, 5, 7), f"{third}.log": Stamp(11_011, 6, 8)},
        segments=(
            PlannedSegment(0, (Piece("00000000000000000000.log", 0, 15_730),), True, False),
            PlannedSegment(10, (Piece(f"{second}.log", 0, 7865),), True, True),
        ),
        log_start_offset=0,
        log_end_offset=15,
        high_watermark=28,
        recovery_point=15,
        lost=LOST,
        bytes_needed=18_904,
        not_covered=(OLD,),
    )
    return built._replace(**fields)


def nothing(path: str = "/data/orders-4", **fields: Any) -> Plan:
    """A partition with which nothing is to be done."""
    built = Plan(path=path, topic_partition=TopicPartition("orders", 4), options=RecoverOptions(now_ms=NOON_MS))
    return built._replace(log_start_offset=0, log_end_offset=30, **fields)
