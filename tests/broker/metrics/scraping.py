"""A scrape of a broker's metrics, read as strictly as Prometheus reads it."""

import re
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse

from moldau.testing.brokers import BrokerInThread

ANY_PORT = {"metrics.listener": "127.0.0.1:0"}
DEADLINE_S = 20.0
_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)')
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"')

Labels = frozenset[tuple[str, str]]
Samples = dict[str, dict[Labels, float]]


class Answer:
    """A page that was got, with its body read."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.content_type = response.getheader("Content-Type") or ""
        self.length = int(response.getheader("Content-Length") or -1)
        self.body = response.read()


def port_of(broker: BrokerInThread) -> int:
    address = broker.broker.metrics_address
    assert address is not None
    return address.port


def get(broker: BrokerInThread, path: str, *, accept: str = "", method: str = "GET") -> Answer:
    connection = HTTPConnection("127.0.0.1", port_of(broker), timeout=DEADLINE_S)
    connection.request(method, path, headers={"Accept": accept} if accept else {})
    try:
        return Answer(connection.getresponse())
    finally:
        connection.close()


def scrape(broker: BrokerInThread) -> Samples:
    answer = get(broker, "/metrics")
    assert answer.status == 200
    return parse(answer.body.decode())


def parse(text: str) -> Samples:
    """Samples by name and labels; a family that is not whole, or a sample that is there twice, fails."""
    samples: Samples = {}
    kinds: dict[str, str] = {}
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in kinds, f"{family} is there twice"
            kinds[family] = kind
        elif not line.startswith("#"):
            match = _SAMPLE.fullmatch(line)
            assert match, line
            name = match[1]
            assert name == family or (name == f"{family}_total" and kinds[family] == "counter"), line
            labels = frozenset(_LABEL.findall(match[2] or ""))
            of_name = samples.setdefault(name, {})
            assert labels not in of_name, f"{line} is there twice"
            of_name[labels] = float(match[3])
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][frozenset(labels.items())]


def sums(samples: Samples, name: str, wanted: Mapping[str, str]) -> float:
    """Sum of all samples that have these labels, and perhaps others."""
    return sum(number for labels, number in samples[name].items() if wanted.items() <= dict(labels).items())
