"""Sentences about transactions whose marker may be lost."""

from kdump.format.naming import TopicPartition
from kdump.recover.salvage.lost_markers import NO_END, UndecidedTransaction
from kdump.verify.checks.hanging import OpenTransaction, abort_command


def undecided_sentence(found: UndecidedTransaction, topic_partition: TopicPartition | None) -> str:
    """What became of a transaction whose marker may be lost, and what to do about it."""
    offsets = f"from offset {found.first_offset} to {found.end_offset - 1}"
    whose = f"producer {found.producer_id}, epoch {found.epoch}: the transaction {offsets}"
    missing = found.missing
    where = f"from offset {missing.first} on" if missing.last == NO_END else f"at offset {missing.first}"
    if NO_END != missing.last != missing.first:
        where = f"between offsets {missing.first} and {missing.last}"
    if found.known == "aborted":
        said = f"{whose} was aborted, as its transaction index says, and its marker {where} is lost"
    elif found.known == "committed":
        known = "was not aborted, as the transaction index says of the next one"
        said = f"{whose} {known}, and its marker {where} is lost"
    else:
        said = f"{whose} may have lost its marker, {where}"
    if found.dropped:
        why = (
            "; else the commit of the next one would take it in"
            if found.known == "aborted" and found.ends == "commit"
            else ""
        )
        what = "1 batch of it is" if found.dropped == 1 else f"{found.dropped} batches of it are"
        return f"{said}: {what} dropped{why}"
    if found.ends == "commit":
        return f"{said}: the commit of the producer's next transaction takes it in"
    if found.ends == "abort":
        kept = ", unless the broker goes by the transaction index" if found.known == "committed" else ""
        return f"{said}: the abort of the producer's next transaction takes it in{kept}"
    hangs = OpenTransaction(topic_partition, "", found.producer_id, found.epoch, found.first_offset, -1, True)
    return f"{said}: consumers that read committed records only stop before it until {abort_command(hangs)}"
