"""Messages of librdkafka as records."""

from typing import TypeVar

from confluent_kafka import Message

from moldau.client.errors import SerdeError
from moldau.client.records import Record, headers_of, place_of
from moldau.client.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")


def decoded(message: Message, key: Serde[K], value: Serde[V]) -> Record[K, V]:
    """The record in a message. Raises SerdeError, which says where the record is."""
    place = place_of(message)
    try:
        return Record(
            *place,
            message.timestamp()[1],
            key.deserialize(message.key(), place.topic, "key"),
            value.deserialize(message.value(), place.topic, "value"),
            headers_of(message),
        )
    except SerdeError as error:
        raise SerdeError(f"{place}: {error}") from error
