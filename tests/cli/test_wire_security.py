"""Connections of the wire client behind TLS and SASL, to Apache Kafka 4.3.1."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.kafka import new_cluster_id
from bench.process import Server
from moldau.cli.failures import ToolError
from moldau.cli.wire_security import security_of
from moldau.testing.ports import free_ports
from tests.cli.conftest import Ended
from tests.clients.java_client import SHARED
from tests.tools.java_tools import JavaTools

PASSWORD = "top=secret"
NAME = "a=b"
"""A name with a character that SCRAM escapes."""
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{CONTROLLER}
listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,{sasl}
inter.broker.listener.name=PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
ssl.keystore.type=PEM
ssl.keystore.location={directory}/both.pem
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
"""
SASL = "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
LOGIN = """listener.name.{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {user};
listener.name.{listener}.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;
listener.name.{listener}.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule required;
"""


@pytest.fixture(scope="module")
def secured(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Apache Kafka with a listener of each kind: addresses by protocol, and the file of the authority."""
    directory = tmp_path_factory.mktemp("secured")
    _make_certificate(directory)
    ports = dict(zip(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "CONTROLLER"), free_ports(5), strict=True))
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings = directory / "server.properties"
    module = "org.apache.kafka.common.security"
    settings.write_text(
        SETTINGS.format(**ports, listeners=listeners, directory=directory, sasl=SASL)
        + "".join(
            LOGIN.format(listener=each, module=module, user=f'user_plainly="{PASSWORD}"')
            for each in ("sasl_plaintext", "sasl_ssl")
        )
    )
    users = [f'SCRAM-SHA-{bits}=[name="{NAME}",password="{PASSWORD}"]' for bits in (256, 512)]
    named = (word for user in users for word in ("--add-scram", user))
    JavaTools(kafka_classpath).succeed(
        "kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", settings, *named
    )
    command = ["java", "-Xmx512m", *SHARED, "-cp", kafka_classpath, "kafka.Kafka", str(settings)]
    with Server("kafka", directory, ports["PLAINTEXT"], command):
        yield {**{name: f"127.0.0.1:{port}" for name, port in ports.items()}, "authority": f"{directory}/own.pem"}


def _make_certificate(directory: Path) -> None:
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", str(directory / "key.pem"), "-out", str(directory / "own.pem")]
    subprocess.run([*request, "-addext", "subjectAltName=IP:127.0.0.1", *files], check=True, capture_output=True)
    (directory / "both.pem").write_text((directory / "key.pem").read_text() + (directory / "own.pem").read_text())


@pytest.fixture
def ask(secured: dict[str, str], run_tool: Callable[[list[str], bytes], Ended]) -> Callable[..., Ended]:
    """Lists brokers by a listener, with client properties."""

    def run(protocol: str, **properties: str) -> Ended:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        words = [
            word
            for name, value in {"security.protocol": protocol, **named}.items()
            for word in ("--command-property", f"{name}={value}")
        ]
        return run_tool(["brokers", "list", "--json", "--bootstrap-server", secured[protocol], *words], b"")

    return run


def test_a_listener_behind_tls_is_spoken_to(ask: Callable[..., Ended], secured: dict[str, str]) -> None:
    assert ask("SSL", ssl_ca_location=secured["authority"]).code == 0
    unknown = ask("SSL")
    assert unknown.code == 1
    assert "certificate" in unknown.errors
    assert ask("SSL", enable_ssl_certificate_verification="false").code == 0
    assert "cannot be read" in ask("SSL", ssl_ca_location="/nowhere").errors


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "name"), [("PLAIN", "plainly"), ("SCRAM-SHA-256", NAME), ("SCRAM-SHA-512", NAME)]
)
def test_a_name_and_a_password_let_us_in(
    ask: Callable[..., Ended], secured: dict[str, str], protocol: str, mechanism: str, name: str
) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_username": name, "ssl_ca_location": secured["authority"]}
    right = ask(protocol, **login, sasl_password=PASSWORD)
    assert right.code == 0, right.errors
    wrong = ask(protocol, **login, sasl_password="guessed")
    assert wrong.code == 1
    assert "does not let us in" in wrong.errors
    assert wrong.errors.count("\n") == 1


def test_what_is_not_spoken_is_refused_by_name() -> None:
    for properties, words in (
        ({"security.protocol": "QUIC"}, "security.protocol QUIC"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism GSSAPI"),
        ({"security.protocol": "SASL_SSL"}, "PLAIN, SCRAM-SHA-256"),
    ):
        with pytest.raises(ToolError, match=words):
            security_of(properties)
