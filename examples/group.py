"""A consumer group: two waiters share the tables of a café, and when one goes home the other takes them all.

python -m examples.group
"""

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide some

import moldau.testing

TABLES = 6


def set_tables(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("tables", TABLES, 1)])["tables"].result()


def waiter(bootstrap: str) -> Consumer:
    """A member of the group `waiters`, who asks twice a second whether somebody came or went."""
    hired = Consumer({"bootstrap.servers": bootstrap, "group.id": "waiters", "heartbeat.interval.ms": 500})
    hired.subscribe(["tables"])
    return hired


def share(waiters: list[Consumer]) -> list[list[int]]:
    """The tables of each waiter, once every table has one."""
    while True:
        for each in waiters:
            each.poll(0.05)
        tables = [sorted(found.partition for found in each.assignment()) for each in waiters]
        if all(tables) and sum(map(len, tables)) == TABLES:
            return tables


def main() -> None:
    with moldau.testing.broker() as kafka:
        set_tables(kafka.bootstrap)
        anna, boris = waiter(kafka.bootstrap), waiter(kafka.bootstrap)
        print("Anna and Boris:", *share([anna, boris]))
        anna.close()
        print("Boris alone:   ", *share([boris]))
        boris.close()


if __name__ == "__main__":
    main()
