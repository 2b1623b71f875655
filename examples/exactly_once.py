"""Orders become invoices, each exactly once: what is read and what is written is committed together (confluent-kafka).

The first clerk drops dead in the middle of a transaction. The second has the same transactional id, so that the cluster
ends what the first has left open, and begins where the last committed transaction ended.

python -m examples.exactly_once            a broker of its own
python -m examples.exactly_once HOST:PORT  any Kafka cluster
"""

import sys
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition

import moldau.testing

ORDERS = 10


def bill(bootstrap: str, orders: int, *, dies_after: int = ORDERS) -> int:
    """Write invoices for so many orders; the number of those that are committed."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "clerks", "auto.offset.reset": "earliest"}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "clerk"})
    producer.init_transactions()
    with closing(Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})) as consumer:
        consumer.subscribe(["orders"])
        billed = 0
        while billed < orders:
            if not (records := consumer.consume(num_messages=4, timeout=1.0)):
                continue
            producer.begin_transaction()
            for record in records:
                producer.produce("invoices", b"invoice for " + (record.value() or b""))
            if billed + len(records) > dies_after:
                producer.flush()
                break
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            billed += len(records)
    return billed


def committed(bootstrap: str, count: int) -> list[str]:
    """The first records of the invoices that are part of a committed transaction."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "isolation.level": "read_committed"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition("invoices", 0, 0)])
        return [(record.value() or b"").decode() for record in consumer.consume(count, timeout=30.0)]


def main(bootstrap: str) -> None:
    with_orders = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS):
        with_orders.produce("orders", f"order {number}".encode(), partition=0)
    with_orders.flush()
    billed = bill(bootstrap, ORDERS, dies_after=5)
    bill(bootstrap, ORDERS - billed)
    for invoice in committed(bootstrap, ORDERS):
        print(invoice)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        with moldau.testing.broker() as kafka:
            main(kafka.bootstrap)
