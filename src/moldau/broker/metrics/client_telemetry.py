"""Metrics that clients push (KIP-714): how many push, among the broker's metrics, and the figures of each as JSON.

The figures are no series for Prometheus: with an id of a client in their labels they would be new ones at every start.
"""

import json
from typing import Final

from moldau.broker.metrics.exposition import Family, counter, gauge
from moldau.broker.metrics.observed import Observed
from moldau.protocol.codec import Steps
from moldau.requests.telemetry import ENABLE, Instance, uuid_text

CLIENTS_TOLD_MAX: Final = 200
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of the page behind which no further client is told."""


def telemetry_families(observed: Observed) -> list[Family]:
    """Families of pushes; none where clients are not asked for their metrics."""
    parts = observed.parts
    if not parts.config.bool(ENABLE):
        return []
    telemetry = parts.telemetry
    instances = gauge("moldau_client_telemetry_instances", "Clients that push metrics, or have asked what to push.")
    instances.add(len(telemetry.instances(parts.clock.monotonic_ms())))
    families = [instances]
    for name, value, description in (
        ("pushes", telemetry.pushes, "Pushes of clients' metrics that were taken."),
        ("pushed_bytes", telemetry.pushed_bytes, "Bytes of them."),
        ("refused", telemetry.refusals, "Pushes, and questions what to push, that were refused."),
    ):
        families.append(counter(f"moldau_client_telemetry_{name}_total", description))
        families[-1].add(value)
    return families


def client_page(observed: Observed) -> Steps[bytes]:
    """The newest figures of clients, those first that were heard of last; a client at each step."""
    parts = observed.parts
    now_ms = parts.clock.monotonic_ms()
    instances = parts.telemetry.instances(now_ms)[::-1]
    told: list[str] = []
    size = 0
    for instance in instances[:CLIENTS_TOLD_MAX]:
        told.append(json.dumps(_told(instance, now_ms)))
        size += len(told[-1])
        if size > PAGE_BYTES_MAX:
            break
        yield
    is_asked = json.dumps(parts.config.bool(ENABLE))
    left_out = len(instances) - len(told)
    return f'{{"enabled": {is_asked}, "left_out": {left_out}, "clients": [{", ".join(told)}]}}\n'.encode()


def _told(instance: Instance, now_ms: int) -> dict[str, object]:
    client = instance.client
    return {
        "instance_id": uuid_text(client.instance_id),
        "client_id": client.id,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "address": client.source_address,
        "port": client.source_port,
        "interval_ms": instance.subscription.interval_ms,
        "asked_for": list(instance.subscription.metrics),
        "pushed_s_ago": None if instance.pushed_ms < 0 else (now_ms - instance.pushed_ms) / 1000,
        "metrics": [
            {"name": name, "labels": dict(labels), "value": value if abs(value) < float("inf") else None}
            for (name, labels), value in instance.series.items()
        ],
    }
