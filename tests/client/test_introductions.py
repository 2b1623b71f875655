"""The examples of Kafka's introductions, in a few lines each, against Moldau and against Apache Kafka 4.3.1."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import moldau
from moldau import JSON, TEXT, Admin, Consumer, Producer, SimpleConsumer
from tests.transaction_servers import until


def test_a_producer_sends_and_a_consumer_reads(any_bootstrap: str, moldau_topic: str) -> None:
    with Producer(any_bootstrap) as producer:
        producer.send(moldau_topic, "hello", key="praha")
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap, key=TEXT, value=TEXT) as consumer:
        [record] = consumer.records(limit=1)
    assert (record.key, record.value, record.offset) == ("praha", "hello", 0)


def test_a_send_is_waited_for_or_its_future_kept(any_bootstrap: str, moldau_topic: str) -> None:
    with Producer(any_bootstrap, value=JSON) as producer:
        first = producer.send_and_wait(moldau_topic, {"page": "/"})
        futures = [producer.send(moldau_topic, {"page": page}, partition=0) for page in ("/a", "/b")]
        assert [first.offset, *(each.result().offset for each in futures)] == [0, 1, 2]


def test_members_of_a_group_share_the_partitions(any_bootstrap: str, moldau_topic: str) -> None:
    Admin(any_bootstrap).create_topic(moldau_topic, partitions=4)
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap) as one:
        assert len(one.wait_for_assignment()) == 4
        with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap) as other:
            while not (len(one.assignment) == len(other.assignment) == 2):
                one.poll(0.1), other.poll(0.1)
            assert not set(one.assignment) & set(other.assignment)


def test_a_group_goes_on_where_it_stopped(any_bootstrap: str, moldau_topic: str) -> None:
    send(any_bootstrap, moldau_topic, range(5))
    assert read(any_bootstrap, moldau_topic, limit=2) == [0, 1]
    assert read(any_bootstrap, moldau_topic, limit=3) == [2, 3, 4]


def test_a_group_replays_a_topic(any_bootstrap: str, moldau_topic: str) -> None:
    send(any_bootstrap, moldau_topic, range(3))
    read(any_bootstrap, moldau_topic, limit=3)
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap, value=JSON) as consumer:
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.records(limit=3)] == [0, 1, 2]


def test_a_reset_group_reads_again(any_bootstrap: str, moldau_topic: str) -> None:
    send(any_bootstrap, moldau_topic, range(3))
    read(any_bootstrap, moldau_topic, limit=3)
    with Admin(any_bootstrap) as admin:
        assert [lag.records for lag in admin.group_lag(moldau_topic)] == [0]
        assert admin.reset_group(moldau_topic, moldau_topic, "earliest") == {0: 0}
    assert read(any_bootstrap, moldau_topic, limit=3) == [0, 1, 2]


def test_a_consumer_seeks_by_time(any_bootstrap: str, moldau_topic: str) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)  # older records than `retention.ms` may be gone at any moment
    noon = yesterday.replace(hour=12, minute=0, second=0, microsecond=0)
    with Producer(any_bootstrap, value=JSON) as producer:
        for hour in range(4):
            producer.send(moldau_topic, hour, timestamp=noon + timedelta(hours=hour))
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap, value=JSON) as consumer:
        consumer.seek_to_time(noon + timedelta(hours=2))
        assert [(record.value, record.time.hour) for record in consumer.records(limit=2)] == [(2, 14), (3, 15)]


def test_a_simple_consumer_reads_exactly_where_it_is_told(any_bootstrap: str, moldau_topic: str) -> None:
    send(any_bootstrap, moldau_topic, range(10))
    with SimpleConsumer(moldau_topic, 0, 7, bootstrap=any_bootstrap, value=JSON) as log:
        assert [record.value for record in log.to_end()] == [7, 8, 9]
        log.rewind(2)
        assert [record.offset for record in log.to_end()] == [8, 9]


def test_words_are_counted(any_bootstrap: str, moldau_topic: str) -> None:
    with Producer(any_bootstrap) as producer:
        for line in ("all streams lead to kafka", "hello kafka streams", "join kafka summit"):
            producer.send(moldau_topic, line)
    counts: Counter[str] = Counter()
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap, value=TEXT) as consumer:
        for record in consumer.records(limit=3):
            counts.update((record.value or "").split())
    assert (counts["kafka"], counts["streams"], counts["hello"]) == (3, 2, 1)


def test_each_record_is_copied_exactly_once(any_bootstrap: str, moldau_topic: str) -> None:
    send(any_bootstrap, moldau_topic, range(3))
    clerk = Consumer(moldau_topic, group_id=moldau_topic, bootstrap=any_bootstrap, auto_commit=False, value=JSON)
    with clerk, Producer(any_bootstrap, transactional_id=moldau_topic, value=JSON) as producer:
        for record in clerk.records(limit=3):
            with producer.transaction(clerk):
                producer.send(f"{moldau_topic}-invoices", record.value)
    assert read(any_bootstrap, f"{moldau_topic}-invoices", limit=3) == [0, 1, 2]
    assert Admin(any_bootstrap).group_offsets(moldau_topic) == {(moldau_topic, 0): 3}


def test_topics_are_created_described_altered_and_deleted(any_bootstrap: str, moldau_topic: str) -> None:
    with Admin(any_bootstrap) as admin:
        assert admin.create_topic(moldau_topic, partitions=2, config={"retention.ms": 1000})
        admin.grow_topic(moldau_topic, 3)
        # a broker of Kafka tells what was changed a moment after it has said that it is
        until(lambda: [each.partition for each in admin.describe_topic(moldau_topic).partitions] == [0, 1, 2])
        admin.alter_topic_config(moldau_topic, {"retention.ms": None, "cleanup.policy": "compact"})

        def is_altered() -> bool:
            config = admin.topic_config(moldau_topic)
            return (config["retention.ms"], config["cleanup.policy"]) == ("604800000", "compact")

        until(is_altered)
        assert moldau_topic in admin.topics()
        assert admin.delete_topic(moldau_topic)
        assert not admin.delete_topic(moldau_topic, missing_ok=True)


def send(bootstrap: str, topic: str, values: range) -> None:
    with moldau.Producer(bootstrap, value=JSON) as producer:
        for value in values:
            producer.send(topic, value)


def read(bootstrap: str, topic: str, limit: int) -> list[object]:
    """Values that the group with the topic's name reads next."""
    with Consumer(topic, group_id=topic, bootstrap=bootstrap, value=JSON) as consumer:
        return [record.value for record in consumer.records(limit=limit)]
