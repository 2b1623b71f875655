"""Errors of the clients, each with one line that says what happened."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class ClientError(Exception):
    """Error of a cluster or a client. `code` is Kafka's name of it, such as `UNKNOWN_TOPIC_OR_PART`; `is_retriable`:
    the same call may succeed later; `is_fatal`: this client cannot go on, a new one can."""

    def __init__(self, message: str, code: str = "", is_retriable: bool = False, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_retriable = is_retriable
        self.is_fatal = is_fatal


class SerdeError(ClientError, ValueError):
    """Error: a key or value cannot be written or read as what it should be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="SERDE")


def client_error(error: "KafkaError", before: str = "") -> ClientError:
    """librdkafka's error as one of ours; `before` says what was being done."""
    words = error.str().removeprefix("Broker: ")
    message = f"{before}: {words}" if before else words
    return ClientError(message, error.name(), error.retriable(), error.fatal())
