"""A broker's configuration: its properties file, and over it the dynamic changes while the cluster runs (KIP-226)."""

import builtins
from collections.abc import Iterable, Mapping

from moldau.core.broker_keys import BROKER_KEYS
from moldau.core.config import ConfigError, ConfigKey, ConfigSource, ConfigType, UpdateMode, Value, parse_value
from moldau.core.invariants import invariant
from moldau.core.listeners import (
    Address,
    Listener,
    check_distinct,
    check_served,
    parse_address,
    parse_listeners,
    parse_protocol_map,
)
from moldau.core.unserved import refuse_unserved

__all__ = ["BROKER_KEYS", "BrokerConfig", "Listener", "base_name", "broker_key", "validate_dynamic"]

_LISTENER_PREFIX = "listener.name."
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000

# The same setting in several units, the finest first: the first one that is set wins.
RETENTION_MS = (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS))
ROLL_MS = (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))
ROLL_JITTER_MS = (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS))
FLUSH_MS = (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))


def base_name(name: str) -> str:
    """The property that `listener.name.<listener>.[<mechanism>.]<property>` sets for one listener, else `name`."""
    if not name.startswith(_LISTENER_PREFIX):
        return name
    rest = name.removeprefix(_LISTENER_PREFIX).partition(".")[2]
    return rest if rest in BROKER_KEYS else rest.partition(".")[2]


def broker_key(name: str) -> ConfigKey | None:
    """The definition of a property, or None if nobody knows it."""
    key = BROKER_KEYS.get(base_name(name))
    return key and (key if key.name == name else key._replace(name=name))


class BrokerConfig:
    """Typed values by Kafka's property names, immutable; a name that is not in BROKER_KEYS is a mistake of ours."""

    __slots__ = ("_inter_broker_listener", "_values", "dynamic_broker", "dynamic_default", "static")

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        self.static = dict(static)
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic_broker = dict(dynamic_broker or {})
        self._values: dict[str, Value | None] = {}
        self._inter_broker_listener: str | None = None

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple["BrokerConfig", list[str]]:
        """The configuration, and the unknown names (sorted, to warn of); raises ConfigError for a bad value."""
        for name, text in properties.items():
            key = broker_key(name)
            if key is not None:
                parse_value(key, text)
            refuse_unserved(name, base_name(name), text)
        config = cls(properties)
        config._check_whole()
        return config, sorted(name for name in properties if broker_key(name) is None)

    def _check_whole(self) -> None:
        for name, _factor in RETENTION_MS:
            if self.value(name) == 0:
                raise ConfigError(name, "must be -1 for no limit, or at least 1")
        if not self.bool("broker.id.generation.enable") and self.broker_id < 0:
            raise ConfigError("broker.id.generation.enable", "is false, and there is no broker.id")
        roles = self.list("process.roles")
        if roles and "broker" not in roles:
            raise ConfigError("process.roles", "this is a broker: there is no process that is a controller only")
        check_distinct("listeners", self.listeners)
        check_served("listeners", self.listeners)
        self._check_advertised()
        self._check_metrics_listener()

    def _check_metrics_listener(self) -> None:
        address = self.metrics_listener
        if address is not None and address.port and address.port in {each.port for each in self.listeners}:
            raise ConfigError("metrics.listener", f"port {address.port} is one of the listeners'")

    def _check_advertised(self) -> None:
        names = {listener.name for listener in self.listeners}
        for listener in self.advertised_listeners:
            if listener.name not in names:
                raise ConfigError("advertised.listeners", f"{listener.name} is not one of the listeners")
            if listener.host == "0.0.0.0" and "advertised.listeners" in self.static:
                raise ConfigError("advertised.listeners", "nobody can connect to 0.0.0.0")
        check_distinct("advertised.listeners", self.advertised_listeners)

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> "BrokerConfig":
        """The same file under these changes: `default` for the whole cluster, `broker` for this one alone."""
        return BrokerConfig(self.static, default, broker)

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """The sources of values, the strongest first; the defaults in the table come after these."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static),
        )

    def text(self, name: str) -> str | None:
        """The value as it was written, or the default."""
        for _source, layer in self.layers():
            if name in layer:
                return layer[name]
        key = broker_key(name)
        return key.default if key else None

    def is_explicit(self, name: str) -> builtins.bool:
        """Whether somebody set the property, even to its default."""
        return any(name in layer for _source, layer in self.layers())

    def value(self, name: str) -> Value | None:
        """The typed value; None where there is neither a value nor a default."""
        if name not in self._values:
            key, text = broker_key(name), self.text(name)
            invariant(key is not None, f"no broker property {name}")
            self._values[name] = parse_value(key, text) if key and text is not None else None
        return self._values[name]

    def for_listener(self, listener: str, name: str) -> Value | None:
        """The value that holds for one listener: `listener.name.<listener>.<name>` before `<name>`."""
        prefixed = f"{_LISTENER_PREFIX}{listener.lower()}.{name}"
        return self.value(prefixed if self.is_explicit(prefixed) else name)

    def first_ms(self, names: Iterable[tuple[str, builtins.int]]) -> builtins.int:
        """The first of `names` that has a value, times its factor; any negative value becomes -1 (no limit)."""
        for name, factor in names:
            value = self.value(name)
            if isinstance(value, builtins.int):
                return max(value * factor, -1)
        return -1

    @property
    def broker_id(self) -> builtins.int:
        """`broker.id`, else KRaft's `node.id`, else -1: an id is to be generated."""
        own = self.int("broker.id")
        node_id = self.optional_int("node.id")
        return node_id if own < 0 and node_id is not None else own

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.list("log.dirs") or self.list("log.dir")

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners to open, without KRaft's controller listeners."""
        if self.is_explicit("listeners"):
            addresses = self.list("listeners")
        else:
            addresses = (_plaintext(self.string("host.name"), self.int("port")),)
        listeners = self._without_controllers(parse_listeners("listeners", addresses, self._protocols()))
        if not listeners:
            raise ConfigError("listeners", "there is no listener for clients")
        return listeners

    @property
    def metrics_listener(self) -> Address | None:
        """The address for metrics; None: they are not served."""
        return parse_address("metrics.listener", self.string("metrics.listener"))

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients are told. The broker fills in a host "" or a port 0."""
        if self.is_explicit("advertised.listeners"):
            addresses = self.list("advertised.listeners")
            return self._without_controllers(parse_listeners("advertised.listeners", addresses, self._protocols()))
        if not self.is_explicit("advertised.host.name") and not self.is_explicit("advertised.port"):
            return self.listeners
        host, port = self.optional_string("advertised.host.name"), self.optional_int("advertised.port")
        return tuple(
            Listener(name, own_host if host is None else host, own_port if port is None else port, security)
            for name, own_host, own_port, security in self.listeners
        )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that other brokers use, worked out once: each transaction asks for it four times."""
        if self._inter_broker_listener is None:
            self._inter_broker_listener = self._find_inter_broker_listener()
        return self._inter_broker_listener

    def _find_inter_broker_listener(self) -> str:
        named = self.optional_string("inter.broker.listener.name")
        if named:
            return named.upper()
        wanted = self.string("security.inter.broker.protocol")
        listeners = self.listeners
        fitting = [listener.name for listener in listeners if listener.security == wanted]
        return fitting[0] if fitting else listeners[0].name

    def _protocols(self) -> dict[str, str]:
        return parse_protocol_map(self.string("listener.security.protocol.map"))

    def _without_controllers(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        controllers = {name.upper() for name in self.list("controller.listener.names")}
        return tuple(listener for listener in listeners if listener.name not in controllers)

    # Typed access. The names are those of the types, hence `builtins` above and below.

    def int(self, name: str) -> builtins.int:
        value = self.value(name)
        if not isinstance(value, builtins.int) or isinstance(value, builtins.bool):
            raise TypeError(f"{name} is not a whole number")
        return value

    long = int
    short = int

    def optional_int(self, name: str) -> builtins.int | None:
        return None if self.value(name) is None else self.int(name)

    def double(self, name: str) -> float:
        value = self.value(name)
        if not isinstance(value, float):
            raise TypeError(f"{name} is not a double")
        return value

    def bool(self, name: str) -> builtins.bool:
        value = self.value(name)
        if not isinstance(value, builtins.bool):
            raise TypeError(f"{name} is not a boolean")
        return value

    def string(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a string")
        return value

    def optional_string(self, name: str) -> str | None:
        return None if self.value(name) is None else self.string(name)

    def list(self, name: str) -> tuple[str, ...]:
        """The items; none where there is no value."""
        value = self.value(name)
        if value is not None and not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list")
        return value or ()


def _plaintext(host: str, port: int) -> str:
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"


def validate_dynamic(changes: Mapping[str, str], *, for_one_broker: bool) -> None:
    """Refuse properties that cannot change at run time, or only broker by broker. Unknown names pass, as in Kafka."""
    for name, text in changes.items():
        key = broker_key(name)
        if key is None:
            continue
        if key.mode is UpdateMode.READ_ONLY:
            raise ConfigError(name, "cannot change while the broker runs")
        if key.mode is UpdateMode.PER_BROKER and not for_one_broker:
            raise ConfigError(name, "can only change broker by broker")
        parse_value(key, text)
        refuse_unserved(name, base_name(name), text)
        if key.type is ConfigType.LONG and name == "log.retention.ms" and int(text) == 0:
            raise ConfigError(name, "must be -1 for no limit, or at least 1")
