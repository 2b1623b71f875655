"""The examples of transactions: each order has one invoice, on Apache Kafka 4.3.1 as well as on a broker of ours."""

from pathlib import Path

import pytest

from tests.examples.test_examples import run
from tests.transaction_servers import SERVERS, server


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("example", ["exactly_once", "exactly_once_asyncio"])
def test_each_order_has_one_invoice(kafka_classpath: str, tmp_path: Path, kind: str, example: str) -> None:
    with server(kind, kafka_classpath, tmp_path / "server", {"num.partitions": "1"}) as bootstrap:
        assert run("-m", f"examples.{example}", bootstrap) == [f"invoice for order {number}" for number in range(10)]
