"""quix-streams: `quix_count.py BOOTSTRAP TOPIC RECORDS DIRECTORY` counts by key in windows of 10 s; prints rows/s."""

import logging
import sys
import time
import uuid
from datetime import timedelta

from quixstreams import Application  # type: ignore[import-not-found]  # in an environment of its own

bootstrap, name, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
logging.disable(logging.WARNING)
app = Application(
    broker_address=bootstrap,
    consumer_group=f"quix-{uuid.uuid4().hex[:8]}",
    auto_offset_reset="earliest",
    state_dir=f"{sys.argv[4]}/quix",
    loglevel="ERROR",
)
events = app.topic(name, value_deserializer="json", timestamp_extractor=lambda v, *_: v["ts"])
counts = app.topic(f"{name}-quix", value_serializer="json")
frame = app.dataframe(events).tumbling_window(timedelta(seconds=10)).count().current()
frame.to_topic(counts)
begun = time.monotonic()
app.run(count=records, timeout=60)
sys.stdout.write(f"{records / (time.monotonic() - begun):.0f}\n")
