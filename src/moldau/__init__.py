"""Moldau: Kafka's commit log, in Python.

Clients for any Kafka cluster: `Producer`, `Consumer`, `SimpleConsumer`, `Admin`, and the same names for asyncio in
`moldau.aio`. They are imported when first asked for: a broker starts without them.
"""

from importlib import import_module

TYPE_CHECKING = False  # typing's own takes time in which Ctrl-C at the start of a command would show a traceback
if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.consumer import Consumer
    from moldau.client.errors import ClientError, SerdeError
    from moldau.client.producer import Producer
    from moldau.client.records import Record, Sent
    from moldau.client.serdes import BYTES, JSON, TEXT, Serde, avro, protobuf
    from moldau.client.simple_consumer import SimpleConsumer

__version__ = "0.1.0"
__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "Admin",
    "ClientError",
    "Consumer",
    "Producer",
    "Record",
    "Sent",
    "Serde",
    "SerdeError",
    "SimpleConsumer",
    "__version__",
    "avro",
    "protobuf",
]

_HOMES = {
    "BYTES": "serdes",
    "JSON": "serdes",
    "TEXT": "serdes",
    "Admin": "admin",
    "ClientError": "errors",
    "Consumer": "consumer",
    "Producer": "producer",
    "Record": "records",
    "Sent": "records",
    "Serde": "serdes",
    "SerdeError": "errors",
    "SimpleConsumer": "simple_consumer",
    "avro": "serdes",
    "protobuf": "serdes",
}


def __getattr__(name: str) -> object:
    """The name's object, imported when asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"moldau.client.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
