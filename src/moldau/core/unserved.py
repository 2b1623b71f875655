"""Properties of Kafka that are known and have no effect here: each is harmless, or a promise that would not be kept.

The law: nobody who sets a property that protects, limits or checks something is left to believe that it works. The
broker refuses to start with it, and says its name and what to do. A property that only tunes, or belongs to a request
or a listener that is refused anyway, is accepted.
"""

from typing import NamedTuple

from moldau.core.broker_keys import BROKER_KEYS
from moldau.core.config import ConfigError


class Refusal(NamedTuple):
    """Reason why a property can only be set to `allowed`, or to its default."""

    reason: str
    allowed: frozenset[str] = frozenset(("",))


_NO_SECURITY = "there is no authentication and no authorization yet: remove it, and let only those connect who may"
_NO_QUOTAS = "quotas are not served yet: remove it"
_NO_PLUGINS = "classes of the JVM cannot be loaded here: remove it"
_FALSE = frozenset(("false",))

REFUSED: dict[str, Refusal] = {
    "authorizer.class.name": Refusal(_NO_SECURITY),
    "super.users": Refusal(_NO_SECURITY),
    "principal.builder.class": Refusal(_NO_SECURITY),
    "delegation.token.secret.key": Refusal("delegation tokens are not served yet: remove it"),
    "delegation.token.master.key": Refusal("delegation tokens are not served yet: remove it"),
    "ssl.client.auth": Refusal(
        "no certificate is asked for, as there are no SSL listeners yet: remove it", frozenset(("none", "requested"))
    ),
    "security.inter.broker.protocol": Refusal("brokers talk in PLAINTEXT only: remove it"),
    "zookeeper.set.acl": Refusal("nodes are made without ACLs: remove it, and keep others from the ensemble", _FALSE),
    "zookeeper.ssl.client.enable": Refusal("the ensemble is talked to without TLS: remove it", _FALSE),
    "client.quota.callback.class": Refusal(_NO_QUOTAS),
    "quota.producer.default": Refusal(_NO_QUOTAS),
    "quota.consumer.default": Refusal(_NO_QUOTAS),
    "max.connection.creation.rate": Refusal("the rate of new connections is not limited yet: remove it"),
    "create.topic.policy.class.name": Refusal(_NO_PLUGINS),
    "alter.config.policy.class.name": Refusal(_NO_PLUGINS),
    "remote.log.storage.system.enable": Refusal("tiered storage is not served: remove it", _FALSE),
    "cordoned.log.dirs": Refusal("new partitions go to every data directory: remove it, or the directory"),
}
"""Refusals by name, also of some properties that are otherwise unknown."""

_HARMLESS = {
    "tunes threads, buffers or timers that are others here": """
        num.network.threads num.io.threads background.threads
        socket.send.buffer.bytes socket.receive.buffer.bytes socket.connection.setup.timeout.max.ms
        fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests
        delete.records.purgatory.purge.interval.requests num.replica.fetchers controller.socket.timeout.ms
        unclean.leader.election.interval.ms log.initial.task.delay.ms log.flush.start.offset.checkpoint.interval.ms
        num.recovery.threads.per.data.dir log.cleaner.io.buffer.size
        group.coordinator.append.linger.ms group.coordinator.threads group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes group.consumer.assignor.offload.enable offsets.load.buffer.size
        transaction.state.log.load.buffer.size
        zookeeper.max.in.flight.requests log.dir.failure.timeout.ms
    """,
    "requests in flight are bounded for each connection instead": "queued.max.requests queued.max.request.bytes",
    "of KRaft, whose files start here": "initial.broker.registration.timeout.ms broker.heartbeat.interval.ms",
    "the controller sends no requests to brokers": "control.plane.listener.name",
    "brokers negotiate": "inter.broker.protocol.version",
    "a commit always waits for all in-sync replicas": "offsets.topic.required.acks",
    "clients see what is served in ApiVersions": "group.coordinator.rebalance.protocols",
    "of moves between data directories, a request that is not served": """
        num.replica.alter.log.dirs.threads replica.alter.log.dirs.io.max.bytes.per.second
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    """,
    "of metrics, which are not kept the JVM's way": """
        metric.reporters metrics.num.samples metrics.sample.window.ms metrics.recording.level
    """,
    "says how quotas are measured, and sets none": """
        quota.window.num quota.window.size.seconds replication.quota.window.num replication.quota.window.size.seconds
        controller.quota.window.num controller.quota.window.size.seconds
    """,
    "of transactions in two phases (KIP-939), which are refused": """
        transaction.two.phase.commit.enable
    """,
    "without an authorizer, which is refused, it says nothing": "allow.everyone.if.no.acl.found",
    "without a key, which is refused, there are no tokens": """
        delegation.token.max.lifetime.ms delegation.token.expiry.time.ms delegation.token.expiry.check.interval.ms
    """,
    "of SASL listeners, which are refused": """
        connection.failed.authentication.delay.ms connections.max.reauth.ms
        sasl.enabled.mechanisms sasl.mechanism.inter.broker.protocol sasl.jaas.config
        sasl.server.callback.handler.class sasl.server.max.receive.size sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.clock.skew.seconds
    """,
    "of SSL listeners, which are refused": """
        ssl.protocol ssl.enabled.protocols ssl.cipher.suites ssl.endpoint.identification.algorithm
        ssl.principal.mapping.rules ssl.keystore.type ssl.keystore.location ssl.keystore.password ssl.keystore.key
        ssl.keystore.certificate.chain ssl.key.password ssl.truststore.type ssl.truststore.location
        ssl.truststore.password ssl.truststore.certificates
    """,
}

HARMLESS: dict[str, str] = {name: reason for reason, names in _HARMLESS.items() for name in names.split()}
"""Reasons why a property may be set though it has no effect, by name."""


def refuse_unserved(name: str, base_name: str, text: str) -> None:
    """Raise ConfigError for a property that would not do what it says. `base_name`: its name without a listener's
    prefix."""
    refusal, key = REFUSED.get(base_name), BROKER_KEYS.get(base_name)
    if refusal is None:
        return
    value = text.strip().lower()
    is_default = key is not None and key.default is not None and value == key.default.lower()
    if not is_default and value not in refusal.allowed:
        raise ConfigError(name, refusal.reason)
