"""The text of the runbook in kdump-recover(1): the steps, and what to do for what is seen."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """A step: what it is for, its commands, and pairs of what is seen then and what to do."""

    text: str
    commands: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()


INTRO = (
    "A broker does not start, or is about to start after a crash. Nothing changes before step 5. Below, /data/kafka "
    "is the log directory (log.dirs), and /data/kafka/orders-3 a partition in it. Run kdump as the user of the "
    "broker. After each command, look at the exit status (echo $?) and at the lines: path: label: sentence."
)
STEPS = (
    Step(
        (
            "Stop the broker, and make sure that nothing starts it again meanwhile. Print what its next start would "
            "do, which changes nothing:"
        ),
        ("kdump recover /data/kafka",),
        (
            (
                "status 0",
                "Nothing is damaged that kdump knows of. Start the broker; its own log says what else is wrong.",
            ),
            (
                "status 1",
                "There is something to do, or to decide. Step 2.",
            ),
            (
                "status 3",
                (
                    'Standard error says what could not be read; everything else was. Where it says "permission '
                    'denied": another user, or step 4. "is not finished": step 9. "no such file": another path.'
                ),
            ),
        ),
    ),
    Step(
        "Read the lines of each partition, and those of the log directory at the end:",
        (),
        (
            (
                "refused",
                (
                    "The broker does not start because of this file. --truncate and --salvage mend it where an "
                    "action above names the file. Where it names Kafka 4.4.0, only that release refuses, and "
                    "--reindex is enough."
                ),
            ),
            (
                "not covered",
                (
                    "The start leaves this as it is, and so does --truncate. Where a broker does not start with it, "
                    "the code says what to do: file/name is a directory or a file that is none of Kafka's "
                    "(lost+found, a backup), to be moved out of the log directory; of another code, see kdump "
                    "verify --explain CODE. The codes index/*, timeindex/*, txnindex/*, snapshot/* and epoch/*: "
                    "--reindex in step 6. The codes segment/missing and checkpoint/beyond: what is gone is in no "
                    "file here; read the line committed. The code offset/base: the batch is whole, no strategy changes "
                    "its offsets. Any other error in a log: step 3."
                ),
            ),
            (
                "clean",
                (
                    "The broker stopped cleanly: its next start reads no log, and consumers get what is damaged in it. "
                    "Repair it all the same; the file that says so can stay."
                ),
            ),
            (
                "running, before the start, undecided",
                (
                    "Do what the sentence says, at the latest before the broker starts; a kafka-transactions.sh in it "
                    "when the broker runs."
                ),
            ),
            (
                "given up",
                "Valid records that --truncate would remove. Where there are any, look at step 3 before step 5.",
            ),
            (
                "damaged",
                "Offsets whose bytes are damaged, or not there. Nothing here brings them back.",
            ),
            (
                "committed",
                (
                    'If it says "nothing lost below the high watermark": step 5, with --truncate. No consumer has '
                    "seen what is gone, but a producer that does not wait for all replicas (acks=1) may count on "
                    "it. If it says COMMITTED, or if there is no such line although something is given up or "
                    "damaged: where other replicas are alive, do not repair, and see REPLICATED PARTITIONS; where "
                    "this is the only one, step 3."
                ),
            ),
        ),
    ),
    Step(
        "See what can be kept after the damage:",
        ("kdump recover --salvage --dry-run /data/kafka/orders-3",),
        (
            (
                "status 1",
                (
                    "The same lines, for --salvage. If its line given up says less than that of step 1, choose "
                    "--salvage in step 5, else --truncate. An action drop names the bytes that go. If it says "
                    '"nothing to do", no strategy mends what is not covered.'
                ),
            ),
            (
                "status 0",
                "There is nothing to salvage. Choose --truncate.",
            ),
        ),
    ),
    Step(
        (
            "If you are in doubt, if there is no copy of the disk, if it fails, is mounted read-only, or you may "
            "only read: write a repaired copy and look at that. The original does not change:"
        ),
        (
            "kdump recover --salvage --output /spare/copy /data/kafka/orders-3",
            "kdump dump /spare/copy/orders-3",
        ),
        (
            (
                "status 0, 4, 1",
                (
                    "The copy is written, and means what it means in step 6. To use it, move the original out of "
                    "the log directory while the broker is stopped, move the copy to its place, and give it the "
                    "owner of the original."
                ),
            ),
            (
                "status 3",
                (
                    "The message says why, and what was not copied. Nothing else has changed. Where something was "
                    "copied, another attempt needs another directory."
                ),
            ),
        ),
    ),
    Step(
        (
            "Apply. Either the plan that you read, and no other (it is refused when a file has changed since; the "
            "first command ends with status 1, as step 1 did; for another strategy, give it --salvage --dry-run or "
            "--reindex --dry-run, too):"
        ),
        (
            "kdump recover --format json /data/kafka > plan",
            "kdump recover --plan plan",
        ),
        (),
    ),
    Step(
        (
            "Or one partition after the other, each with the strategy that suits it. A checkpoint of the log "
            "directory is mended only where the path is the log directory: end with --truncate for that one, which "
            "changes no partition that is right by now, and truncates every other one:"
        ),
        ("kdump recover --salvage /data/kafka/orders-3", "kdump recover --truncate /data/kafka"),
        (
            (
                "status 0",
                "Nothing valid was given up, and no committed record that was here is missing. Step 7.",
            ),
            (
                "txn/hanging",
                (
                    "A warning: consumers of committed records stop before this transaction. Start the broker, then "
                    "run the command in the sentence. It aborts the transaction, also where its lost marker was a "
                    "commit: these consumers then skip its records. To keep "
                    "them, read them with isolation.level=read_uncommitted."
                ),
            ),
            (
                "txn/open",
                (
                    "A warning: no transaction log that can be read says whether the marker of this transaction still "
                    "comes. Start the broker; kafka-transactions.sh find-hanging says it then."
                ),
            ),
            (
                "status 4",
                (
                    "Done, as the plan said: valid records were given up, or offsets below the high watermark are "
                    "missing now. What was removed is kept. The only replica: step 7. Other replicas alive: see "
                    "REPLICATED PARTITIONS."
                ),
            ),
            (
                "status 1",
                (
                    "What could be done is done. Errors stay, or something with which a broker does not start: the "
                    "lines not covered and left after applying. Do what step 2 says of them. After a "
                    "segment/missing or a checkpoint/beyond, the status stays 1; a broker starts with them."
                ),
            ),
            (
                "status 3",
                (
                    'Nothing was changed where it failed, and the message says why. "permission denied", "read-only '
                    'file system", "no space left": mend that, or step 4. "has changed since": step 1. "is not '
                    'finished": step 9. "choose with --from": the partition lies in no log directory; a broker that '
                    "knows nothing of it does what --from all does."
                ),
            ),
            (
                "killed, 130, 70",
                "Step 9.",
            ),
        ),
    ),
    Step(
        "Verify the result, with what the partitions show together; the line next says what is left to do:",
        ("kdump verify /data/kafka",),
        (
            (
                "status 0",
                (
                    "Start the broker, and watch its log for the partition. Warnings offset/gap and producer/gap "
                    "are the holes of a salvage."
                ),
            ),
            (
                "status 1",
                "As in step 6.",
            ),
        ),
    ),
    Step(
        (
            "If you do not want the result, stop the broker and undo the run. After several runs, use the commands in "
            "their lines undo, the last run first. Without --run the last run is undone. Where that is an undo, to "
            "undo it brings the repair back, and --run or --force is asked for:"
        ),
        ("kdump recover --undo /data/kafka/orders-3",),
        (
            (
                "status 0",
                (
                    "All that the run changed is as it was before. Step 1; where a broker ran meanwhile, it may have "
                    "lowered the high watermark, so that the line committed of before the run is the true one."
                ),
            ),
            (
                "status 3",
                (
                    "Nothing was changed: a log has changed since, or there is no run here. The message has the "
                    "command for the other partitions; --force undoes it all the same, and keeps what is there now."
                ),
            ),
        ),
    ),
    Step(
        (
            "A run that was killed (power, kill, disk) is not finished: no broker should start on it, and recover "
            "refuses until it is. Finish it or undo it, at the path that the message names, which is the log "
            "directory where the run was in one. Both can be killed and repeated too:"
        ),
        (
            "kdump recover --resume /data/kafka",
            "kdump recover --undo /data/kafka",
        ),
        (
            (
                "--resume",
                "prints what the run would have printed, with its status: step 6. Status 3: a partition changed since.",
            ),
            (
                "--undo",
                "Status 0: nothing of the run is left. Step 1. A killed undo goes on. Status 3: as in step 8.",
            ),
        ),
    ),
    Step(
        "When all is well, some days later, free the space. No run can be undone then:",
        ("rm -rf /data/kafka/*/.kdump-undo /data/kafka/.kdump-undo-*",),
        (),
    ),
)
