"""The configuration of a running broker: what its file says, and over it what the cluster says (KIP-226)."""

from collections.abc import Mapping

from moldau.core.broker_config import BrokerConfig


class DynamicConfig:
    """Holds the configuration as it is now. A `BrokerConfig` never changes: whoever keeps one keeps an old one."""

    __slots__ = ("now",)

    def __init__(self, static: BrokerConfig) -> None:
        self.now = static

    def take(self, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Hold from now on what the cluster says of all brokers, and of this one."""
        self.now = self.now.with_dynamic(cluster_wide, own)
