"""Divergence of the log of a follower or consumer that last fetched in another epoch from ours (KIP-320, KIP-595)."""

from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import UNKNOWN
from moldau.protocol.messages.k01_fetch import EpochEndOffset

NO_DIVERGENCE = EpochEndOffset()


def diverging_epoch(log: Log, last_fetched_epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Epoch, and its end here, after which the logs differ; None: all that was fetched is the same here."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
    if UNKNOWN in (epoch, end_offset):
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known of epoch {last_fetched_epoch} here")
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
