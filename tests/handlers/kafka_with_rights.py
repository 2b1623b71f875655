"""Apache Kafka with its authorizer: as many users as a test wants, each with rights of its own.

Users come by SASL/PLAIN, and each has its rights from the start of the test on: to change an ACL takes effect later.
"""

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.kafka import new_cluster_id
from moldau.protocol.apis import find, response_type
from moldau.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.k29_describe_acls import DescribeAclsRequest
from moldau.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.schema import Message
from moldau.requests.authorization import CLUSTER, THE_CLUSTER, Operation, Resource
from moldau.testing.ports import free_ports
from tests.broker.raw import RawClient
from tests.clients.java_client import SHARED

ADMIN, PASSWORD = "admin", "secret"
START_S, SETTLE_S = 60.0, 30.0
ANY, ALL_OPERATIONS, DENIED, ALLOWED, LITERAL = 1, 2, 2, 3, 3
API_VERSIONS_VERSION = 3

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required username="{admin}" password="{password}" {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{admin};User:ANONYMOUS
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Rule(NamedTuple):
    """A line of the ACLs, for every resource of its type."""

    operation: int
    resource: Resource
    permission: int = ALLOWED


def everything_but(denied: Iterable[tuple[Operation, Resource]]) -> list[Rule]:
    allowed = [Rule(ALL_OPERATIONS, resource) for resource in Resource]
    return allowed + [Rule(operation, resource, DENIED) for operation, resource in denied]


def only(allowed: Iterable[tuple[Operation, Resource]]) -> list[Rule]:
    return [Rule(operation, resource) for operation, resource in allowed]


class KafkaWithRights:
    """Asks a running Kafka as this or that user."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connections: dict[str, RawClient] = {}
        self._served: dict[int, int] = {}

    def ask(self, request: Message, version: int | None = None, *, user: str = ADMIN) -> Any:
        """The answer; None for a version is the newest that both know."""
        key = request.api_key
        api = find(key)
        assert api is not None
        client = self._connections.get(user)
        if client is None:
            client = self._connections[user] = self._connect(user)
        newest = min(api.max_version, self._served[key])
        return client.ask(key, newest if version is None else version, request, response_type(key))

    def give_rights(self, rights: Mapping[str, Sequence[Rule]]) -> None:
        """Returns when the broker knows of all of them."""
        creations = [
            AclCreation(
                resource_type=rule.resource,
                resource_name=THE_CLUSTER if rule.resource is CLUSTER else "*",
                principal=f"User:{user}",
                host="*",
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for user, rules in rights.items()
            for rule in dict.fromkeys(rules)
        ]
        assert {each.error_code for each in self.ask(CreateAclsRequest(creations=creations)).results} == {0}
        every = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        deadline = time.monotonic() + SETTLE_S
        while sum(len(each.acls) for each in self.ask(every).resources) < len(creations):
            assert time.monotonic() < deadline, "the broker does not hear of its ACLs"

    def close(self) -> None:
        for client in self._connections.values():
            client.socket.close()

    def _connect(self, user: str) -> RawClient:
        client = RawClient(self._bootstrap)
        asked = ApiVersionsRequest(client_software_name="moldau", client_software_version="1")
        versions = client.ask(18, API_VERSIONS_VERSION, asked, ApiVersionsResponse)
        self._served = {each.api_key: each.max_version for each in versions.api_keys}
        assert client.ask(17, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse).error_code == 0
        proof = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode())
        assert client.ask(36, 2, proof, SaslAuthenticateResponse).error_code == 0
        return client


@contextmanager
def kafka_with_rights(directory: Path, classpath: str, users: Iterable[str]) -> Iterator[KafkaWithRights]:
    """Apache Kafka 4.3.1 with these users, who may do nothing yet."""
    port, controller = free_ports(2)
    settings = directory / "server.properties"
    settings.write_text(
        PROPERTIES.format(
            directory=directory,
            port=port,
            controller=controller,
            module="org.apache.kafka.common.security.plain.PlainLoginModule",
            admin=ADMIN,
            password=PASSWORD,
            users=" ".join(f'user_{user}="{PASSWORD}"' for user in (ADMIN, *users)),
        )
    )
    java = ["java", "-Xmx512m", *SHARED, "-cp", classpath]
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(settings)]
    subprocess.run(formatting, check=True, capture_output=True)
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=out, stderr=subprocess.STDOUT)
    kafka = KafkaWithRights(f"127.0.0.1:{port}")
    try:
        _wait_until_it_serves(kafka, process, directory / "out")
        yield kafka
    finally:
        kafka.close()
        process.kill()
        process.wait()


def _wait_until_it_serves(kafka: KafkaWithRights, process: "subprocess.Popen[bytes]", out: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            kafka._connect(ADMIN).socket.close()
        except (OSError, ValueError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka does not start: {out.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return
