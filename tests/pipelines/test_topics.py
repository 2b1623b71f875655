from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.pipelines.topics import Cluster, ClusterError, cluster_of, librdkafka, when_ready
from tests.pipelines import clusters
from tests.pipelines.specs import pipeline

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\"b;c";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required\n  username='bob'\n  password='p q';"


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ({"security.protocol": "SASL_SSL", "client.id": "c"}, {"security.protocol": "SASL_SSL", "client.id": "c"}),
        ({"sasl.jaas.config": PLAIN}, {"sasl.username": "ann", "sasl.password": 'a"b;c'}),
        ({"sasl.jaas.config": SCRAM}, {"sasl.username": "bob", "sasl.password": "p q"}),
        ({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "ca.pem"}),
        ({"ssl.truststore.certificates": "--"}, {"ssl.ca.pem": "--"}),
        (
            {"ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "k.pem", "ssl.keystore.type": "PEM"},
            {"ssl.certificate.location": "k.pem", "ssl.key.location": "k.pem"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"max.poll.records": "5", "acks": "1", "buffer.memory": "100"}, {}),
    ],
)
def test_properties_in_javas_names_become_librdkafkas(java: dict[str, str], found: dict[str, str]) -> None:
    assert librdkafka(java) == found


@pytest.mark.parametrize(
    "java",
    [
        {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        {"ssl.truststore.location": "ca.jks"},
        {"ssl.keystore.location": "key.jks"},
    ],
)
def test_what_librdkafka_cannot_take_is_refused_with_its_name(java: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=next(iter(java))):
        librdkafka(java)


def test_another_cluster_gets_nothing_of_the_pipelines_properties(tmp_path: Path) -> None:
    spec = pipeline(tmp_path, "here:9092", client={"security.protocol": "SSL"})
    assert cluster_of(spec) == Cluster("here:9092", (("security.protocol", "SSL"),))
    own = {"bootstrap": None, "client": {"client.id": "me"}}
    assert dict(cluster_of(spec, own).client) == {"security.protocol": "SSL", "client.id": "me"}
    assert cluster_of(spec, {"bootstrap": "there:9092", "client": None}) == Cluster("there:9092")
    assert cluster_of(spec).spark_options() == {
        "kafka.bootstrap.servers": "here:9092",
        "kafka.security.protocol": "SSL",
    }


def test_topics_offsets_and_groups_are_looked_up(cluster: clusters.Cluster) -> None:
    asked = Cluster(cluster.bootstrap)
    topic = f"{cluster.new_topic()}-made"
    assert asked.create(topic, 2, 1, {"cleanup.policy": "compact"})
    assert not asked.create(topic, 2, 1, {})
    read = {topic: asked.topics()[topic]}
    assert read == {topic: [0, 1]}
    moments = [clusters.Record(b"x", b"k", timestamp_ms=moment) for moment in (1000, 2000, 3000)]
    cluster.send(topic, moments)
    assert asked.ends(read) == {topic: {0: 3, 1: 0}}
    assert asked.offsets_at(1500, read) == {topic: {0: 1, 1: 0}}
    assert asked.offsets_at(9000, read) == {topic: {0: 3, 1: 0}}
    assert asked.offsets_of_group("nobody", read) == {}
    cluster.commit("somebody", topic, {0: 2})
    assert asked.offsets_of_group("somebody", read) == {topic: {0: 2}}
    assert "__consumer_offsets" not in asked.topics()


def test_what_the_cluster_refuses_is_one_line(cluster: clusters.Cluster) -> None:
    with pytest.raises(ClusterError, match=rf"the cluster at {cluster.bootstrap} says: ") as raised:
        Cluster(cluster.bootstrap).create("not a name!", 1, 1, {})
    assert "\n" not in str(raised.value)


class Coordinator:
    """Answers with these errors first, each once."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)

    def __call__(self) -> str:
        if self._errors:
            raise KafkaException(KafkaError(self._errors.pop(0)))
        return "the answer"


def test_a_coordinator_that_is_only_just_being_found_is_asked_again() -> None:
    coming = (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert when_ready(Coordinator(*coming)) == "the answer"


def test_other_refusals_are_not_asked_again() -> None:
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        when_ready(Coordinator(KafkaError.GROUP_AUTHORIZATION_FAILED))
