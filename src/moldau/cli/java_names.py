"""Client properties by the names of Kafka's Java clients, where librdkafka has another name, another unit, or none.

A file of properties that Java's clients use is understood: the name and password of `sasl.jaas.config`, key and trust
stores that are PEM. Java's own keystores are refused with the way to make PEM of them.
"""

import re
from collections.abc import Mapping
from typing import Any

from moldau.cli.failures import ToolError

OTHER_NAMES = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
ASSIGNORS = {
    f"org.apache.kafka.clients.consumer.{name}Assignor": other
    for name, other in (("Range", "range"), ("RoundRobin", "roundrobin"), ("CooperativeSticky", "cooperative-sticky"))
}
WITHOUT_COUNTERPART = frozenset(
    {
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.class",
        "value.deserializer",
        "value.serializer",
        "ssl.keystore.type",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Properties that mean nothing to librdkafka; a file of properties that is shared with Java programs has them."""


_LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule")
_ASSIGNMENT = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def librdkafka_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as librdkafka knows them. What it does not know it refuses by name."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "buffer.memory":
            if not str(value).isdecimal():
                raise ToolError(f"buffer.memory {value!r} is not a number of bytes")
            found["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
        elif name == "sasl.jaas.config":
            found |= _login(str(value))
        elif name in ("ssl.truststore.location", "ssl.keystore.location"):
            found |= _store(name, str(value), str(properties.get(name.replace("location", "type"), "JKS")).upper())
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name == "partition.assignment.strategy":
            found[name] = ",".join(ASSIGNORS.get(each.strip(), each.strip()) for each in str(value).split(","))
        elif name not in WITHOUT_COUNTERPART:
            found[OTHER_NAMES.get(name, name)] = value
    return found


def _login(text: str) -> dict[str, str]:
    """Name and password of a line for Java's login modules."""
    module = text.split()[0].rpartition(".")[2] if text.split() else ""
    found = {key: re.sub(r"\\(.)", r"\1", one or two or bare) for key, one, two, bare in _ASSIGNMENT.findall(text)}
    if module not in _LOGIN_MODULES or not {"username", "password"} <= found.keys():
        raise ToolError(
            f"sasl.jaas.config is understood of {' and '.join(_LOGIN_MODULES)} with username and password only: "
            "say the same with librdkafka's properties sasl.*"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _store(name: str, path: str, kind: str) -> dict[str, str]:
    """Certificates of Java's store, where it is PEM."""
    if kind == "PEM":
        is_trust = name.startswith("ssl.truststore")
        names = ("ssl.ca.location",) if is_trust else ("ssl.certificate.location", "ssl.key.location")
        return dict.fromkeys(names, path)
    if kind == "PKCS12" and name.startswith("ssl.keystore"):
        return {name: path}
    raise ToolError(
        f"{name} names a store of Java ({kind}): make PEM of it (`keytool -exportcert -rfc -keystore {path}`), and "
        "name that with ssl.ca.location, or with ssl.certificate.location and ssl.key.location"
    )
