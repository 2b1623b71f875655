"""bytewax: `bytewax_count.py BOOTSTRAP TOPIC RECORDS` counts by key in windows of 10 s; prints rows/s.

Its Kafka source ends at the end of the topic (`tail=False`).
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]  # in an environment of its own
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.operators.windowing import EventClock, TumblingWindower, count_window  # type: ignore[import-not-found]
from bytewax.testing import run_main  # type: ignore[import-not-found]

bootstrap, name, records = sys.argv[1], sys.argv[2], int(sys.argv[3])


def event(message: Any) -> Any:
    value = json.loads(message.value)
    return message.key.decode(), datetime.fromtimestamp(value["ts"] / 1000, UTC)


flow = Dataflow("count")
read = op.input("in", flow, KafkaSource([bootstrap], [name], tail=False, batch_size=10_000))
events = op.map("decode", read, event)
clock = EventClock(lambda pair: pair[1], wait_for_system_duration=timedelta(seconds=10))
windower = TumblingWindower(length=timedelta(seconds=10), align_to=datetime(2026, 1, 1, tzinfo=UTC))
counted = count_window("count", events, clock, windower, lambda pair: pair[0])
out = op.map("encode", counted.down, lambda pair: KafkaSinkMessage(pair[0].encode(), json.dumps(pair[1]).encode()))
op.output("out", out, KafkaSink([bootstrap], f"{name}-bytewax"))
begun = time.monotonic()
run_main(flow)
sys.stdout.write(f"{records / (time.monotonic() - begun):.0f}\n")
