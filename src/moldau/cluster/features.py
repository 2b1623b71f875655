"""Features of the cluster and their levels (KIP-584): which ones there are, and what may be made of them.

A level is finalized for the whole cluster and kept in the store; a feature that has none there is at level 0. A new
cluster begins with the newest levels. So does a store of an earlier version of this broker, which kept no features: it
served no transactions, so nothing is there that a lower level would have to protect. A store that Apache Kafka made
has levels of its own, and they stay until somebody raises them.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.cluster.image import ClusterImage
from moldau.protocol.errors import ApiError, ErrorCode

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"

Levels = Mapping[str, int]


class Supported(NamedTuple):
    """The levels that this broker can work at, both ends included."""

    min_level: int
    max_level: int


SUPPORTED: Final[Mapping[str, Supported]] = {
    GROUP_VERSION: Supported(1, 1),  # KIP-848: consumer groups are served, and cannot be switched off
    TRANSACTION_VERSION: Supported(0, 2),  # KIP-890: 1 has tagged fields in the log, 2 an epoch for each transaction
}
NEWEST: Final[Levels] = {name: levels.max_level for name, levels in SUPPORTED.items()}


class UpgradeType(IntEnum):
    """Direction in which a level may go; the numbers of the protocol. Nothing of ours is lost on the way down, so that
    a safe downgrade and an unsafe one are the same."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level that somebody wants; `upgrade_type` may be none of UpgradeType."""

    feature: str
    level: int
    upgrade_type: int


def finalized(image: ClusterImage) -> dict[str, int]:
    """The levels at which the cluster works, of those features that this broker knows; without those at level 0."""
    known = {name: min(image.features.get(name, 0), levels.max_level) for name, levels in SUPPORTED.items()}
    return {name: level for name, level in known.items() if level > 0}


def transaction_version(image: ClusterImage) -> int:
    """The level of `transaction.version`: how transactions that begin now are to be kept."""
    return finalized(image).get(TRANSACTION_VERSION, 0)


def updated(features: Levels, updates: Iterable[FeatureUpdate]) -> dict[str, int]:
    """The levels once all of `updates` have happened; raises INVALID_UPDATE_VERSION for all if one cannot be."""
    result = dict(features)
    for update in updates:
        reason = _refusal(features.get(update.feature, 0), update)
        if reason is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"no feature is updated: {update.feature!r} cannot have the level {update.level}, {reason}",
            )
        result.pop(update.feature, None)
        if update.level > 0:
            result[update.feature] = update.level
    return result


def _refusal(current: int, update: FeatureUpdate) -> str | None:
    """Kafka's checks in Kafka's order."""
    supported = SUPPORTED.get(update.feature)
    if update.upgrade_type not in (*UpgradeType,):
        return f"as the upgrade type {update.upgrade_type} is not known"
    if update.level < 0:
        return "which is below 0"
    if supported is None:
        return f"as there is no such feature; there are {', '.join(SUPPORTED)}"
    if not supported.min_level <= update.level <= supported.max_level:
        return f"as only levels {supported.min_level} to {supported.max_level} are supported"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return f"which is below {current}: ask for a downgrade"
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"which is above {current}: ask for an upgrade"
    return None
