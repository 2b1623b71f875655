"""Client properties by the names of Kafka's Java clients."""

import pytest

from moldau.cli.failures import ToolError
from moldau.cli.java_names import librdkafka_names


def test_names_and_units_of_java_are_turned_into_librdkafkas() -> None:
    given = {"buffer.memory": "33554432", "max.request.size": "5", "key.serializer": "x", "acks": "1"}
    assert librdkafka_names(given) == {"queue.buffering.max.kbytes": 32768, "message.max.bytes": "5", "acks": "1"}
    with pytest.raises(ToolError, match="not a number of bytes"):
        librdkafka_names({"buffer.memory": "much"})


def test_a_line_for_javas_login_modules_gives_name_and_password() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    line = f'{module} required username="a\\"b" password=\'x y\';'
    assert librdkafka_names({"sasl.jaas.config": line}) == {"sasl.username": 'a"b', "sasl.password": "x y"}
    for other in ("", "nonsense", "com.acme.Module required username=a password=b;", f"{module} required;"):
        with pytest.raises(ToolError, match=r"sasl\.jaas\.config is understood of"):
            librdkafka_names({"sasl.jaas.config": other})


def test_stores_that_are_pem_are_certificates_and_javas_own_are_refused() -> None:
    trust = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
    own = {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "PEM"}
    assert librdkafka_names({**trust, **own}) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
    }
    with pytest.raises(ToolError, match=r"store of Java \(JKS\): make PEM"):
        librdkafka_names({"ssl.truststore.location": "/a.jks"})
