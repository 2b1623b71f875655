"""Every property that a broker knows has an effect, or is harmless, or is refused; and what Kafka ships starts."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from moldau.core.broker_config import BROKER_KEYS, BrokerConfig, validate_dynamic
from moldau.core.config import ConfigError
from moldau.core.unserved import HARMLESS, REFUSED

ROOT = Path(moldau.__file__).parent
TABLES = {ROOT / "core" / "broker_keys.py", ROOT / "core" / "unserved.py"}
ROOMS = (
    *("core", "protocol", "records", "log", "replication", "cluster"),
    *("coordinators", "requests", "fastpath", "handlers", "broker"),
)

KAFKAS_OWN = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""What config/server.properties of Apache Kafka 4.3 sets."""


def _names_in_code() -> set[str]:
    """Property names, and beginnings of them, that stand in the code: not in its docstrings, nor in the tables."""
    return {
        word
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path not in TABLES
        for text in _strings(ast.parse(path.read_text()))
        for word in re.split(r"[\s,|:=\"']+", text)
    }


def _strings(tree: ast.AST) -> Iterator[str]:
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def test_every_property_is_read_or_harmless_or_refused() -> None:
    written = _names_in_code()
    limits = re.compile(r"group\.consumer\.(min|max)\.[a-z.]+\.ms")  # put together from that of a group
    for name in BROKER_KEYS:
        is_read = name in written or limits.fullmatch(name) is not None
        ways = [is_read, name in HARMLESS, name in REFUSED]
        assert any(ways), f"{name} is known, has no effect, and nobody says why"
        assert not (name in HARMLESS and (is_read or name in REFUSED)), f"{name} is harmless and something else"
    assert set(HARMLESS) <= set(BROKER_KEYS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "SASL_SSL://localhost:9092"),
        ("listeners", "PLAINTEXT://localhost:9092,SSL://localhost:9093"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:admin"),
        ("principal.builder.class", "org.example.Builder"),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("security.inter.broker.protocol", "SSL"),
        ("delegation.token.secret.key", "secret"),
        ("client.quota.callback.class", "org.example.Quotas"),
        ("quota.producer.default", "1048576"),
        ("quota.consumer.default", "1048576"),
        ("max.connection.creation.rate", "100"),
        ("create.topic.policy.class.name", "org.example.Policy"),
        ("alter.config.policy.class.name", "org.example.Policy"),
        ("remote.log.storage.system.enable", "true"),
        ("zookeeper.set.acl", "true"),
        ("zookeeper.ssl.client.enable", "true"),
        ("cordoned.log.dirs", "/data"),
        ("process.roles", "controller"),
        ("broker.id.generation.enable", "false"),
    ],
)
def test_what_is_configured_and_not_served_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.parse({name: value})
    assert error.value.name == name


def test_a_name_in_the_map_does_not_hide_what_a_listener_wants() -> None:
    properties = {"listeners": "INSIDE://:9092", "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT"}
    with pytest.raises(ConfigError, match=r"INSIDE.*SASL_PLAINTEXT"):
        BrokerConfig.parse(properties)
    BrokerConfig.parse({**properties, "listener.security.protocol.map": "INSIDE:PLAINTEXT"})


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_defaults_and_nothing_may_be_said_aloud(name: str) -> None:
    default = BROKER_KEYS[name].default if name in BROKER_KEYS else None
    for value in REFUSED[name].allowed if default is None else {default}:
        BrokerConfig.parse({name: value})


def test_a_running_broker_is_not_told_what_it_would_refuse_at_its_start() -> None:
    with pytest.raises(ConfigError):
        validate_dynamic({"max.connection.creation.rate": "5"}, for_one_broker=False)


def test_the_file_that_kafka_ships_starts() -> None:
    config, unknown = BrokerConfig.parse(dict(line.split("=", 1) for line in KAFKAS_OWN.split()))
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert all(name.startswith(("controller.", "share.")) for name in unknown)
