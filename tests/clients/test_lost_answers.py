"""An idempotent producer whose connection breaks after the write sends again, and the broker knows the batch."""

import pytest

from moldau.testing import broker
from tests.clients.adapters import Clients
from tests.clients.interface import Client, numbered, values
from tests.clients.proxy import AnswerLosingProxy

LOST = 3


@pytest.mark.parametrize("name", ["java-4.3.1", "confluent-kafka", "aiokafka", "kafka-python"])
def test_a_retry_after_a_lost_answer_leaves_no_duplicate(name: str, clients: Clients) -> None:
    with AnswerLosingProxy() as proxy, broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"}) as kafka:
        proxy.target = kafka.bootstrap
        client: Client = clients.connect(name, proxy.address)
        client.produce("t", 0, numbered(1), idempotent=True)  # the topic is there and known
        proxy.lose(LOST)
        offsets = client.produce("t", 0, numbered(500, start=1), idempotent=True)
        assert proxy.lost == LOST
        assert offsets == list(range(1, 501))
        assert client.produce("t", 0, numbered(1, start=501)) == [501]  # nothing more is there
        assert values(client.read("t", 0, "earliest", 502)) == values(numbered(502))
        clients.close_clients()
