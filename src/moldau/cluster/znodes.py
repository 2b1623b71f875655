"""Paths and contents of the tree: Kafka's own layout of the ZooKeeper era, so that its tools read ours."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, BrokerInfo, Endpoint, PartitionImage

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/latest_producer_id_block"
WHOLE_CLUSTER = "<default>"

PERSISTENT_PATHS = (
    "/admin/delete_topics",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    BROKER_CONFIGS,
    "/config/changes",
    "/config/clients",
    GROUP_CONFIGS,
    "/config/ips",
    TOPIC_CONFIGS,
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    PRODUCER_IDS,
    "/log_dir_event_notification",
)

NO_STATE = PartitionImage(NO_LEADER, -1, (), (), -1)
"""A partition that no controller has looked at yet."""


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_config_path(entity: str) -> str:
    """`entity` is a broker's id as text, or "" for the whole cluster."""
    return f"{BROKER_CONFIGS}/{entity or WHOLE_CLUSTER}"


def group_config_path(group: str) -> str:
    """Any text may name a group, also one with slashes or of dots alone, which ZooKeeper would not take."""
    return f"{GROUP_CONFIGS}/{quote(group, safe='').replace('.', '%2E')}"


def parse_group_entity(entity: str) -> str:
    """The group whose configuration is at the node of this name."""
    return unquote(entity)


def id_text(id_: bytes) -> str:
    """Sixteen bytes as Kafka writes them: 22 characters of base64url."""
    return base64.urlsafe_b64encode(id_).decode("ascii").rstrip("=")


def id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}==")


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def topic_json(topic_id: bytes, partitions: Sequence[PartitionImage]) -> bytes:
    return _dump(
        {
            "removing_replicas": {str(index): each.removing for index, each in enumerate(partitions) if each.removing},
            "partitions": {str(index): each.replicas for index, each in enumerate(partitions)},
            "topic_id": id_text(topic_id),
            "adding_replicas": {str(index): each.adding for index, each in enumerate(partitions) if each.adding},
            "version": 3,
        }
    )


def parse_topic(data: bytes) -> tuple[bytes | None, list[PartitionImage]]:
    """Topic id (None where a tool from before KIP-516 made the topic) and the replicas of each partition."""
    content = json.loads(data)
    partitions: dict[str, list[int]] = content["partitions"]
    adding: dict[str, list[int]] = content.get("adding_replicas") or {}
    removing: dict[str, list[int]] = content.get("removing_replicas") or {}
    topic_id = content.get("topic_id")
    assignment = [
        NO_STATE._replace(
            replicas=tuple(partitions[name]), adding=tuple(adding.get(name, ())), removing=tuple(removing.get(name, ()))
        )
        for name in map(str, range(len(partitions)))
    ]
    return (id_bytes(topic_id) if topic_id else None), assignment


def parse_topic_id(data: bytes) -> bytes:
    topic_id = json.loads(data).get("topic_id")
    return id_bytes(topic_id) if topic_id else NO_TOPIC_ID


def state_json(partition: PartitionImage, controller_epoch: int) -> bytes:
    """By hand: a failover writes thousands of these."""
    isr = ",".join(map(str, partition.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def parse_state(data: bytes, version: int) -> PartitionImage:
    """Leader, epochs and ISR; the replicas are not written here."""
    content = json.loads(data)
    return PartitionImage(content["leader"], content["leader_epoch"], tuple(content["isr"]), (), version)


def config_json(configs: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(configs)})


def parse_config(data: bytes) -> dict[str, str]:
    return dict(json.loads(data).get("config", {})) if data else {}


def broker_json(broker: BrokerInfo, now_ms: int) -> bytes:
    """`host` and `port` repeat the first plain address, for tools from before `endpoints`."""
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.security == "PLAINTEXT"), None)
    content: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {endpoint.listener: endpoint.security for endpoint in broker.endpoints},
        "endpoints": [_endpoint_text(endpoint) for endpoint in broker.endpoints],
        "jmx_port": -1,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        content["rack"] = broker.rack
    if broker.shutting_down:
        content["shutting_down"] = True
    if broker.offline:
        content["offline"] = {topic: list(partitions) for topic, partitions in broker.offline.items()}
    return _dump(content)


def parse_broker(broker_id: int, data: bytes, epoch: int) -> BrokerInfo:
    content = json.loads(data)
    protocols: dict[str, str] = content.get("listener_security_protocol_map", {})
    endpoints = tuple(_parse_endpoint(text, protocols) for text in content["endpoints"])
    offline: dict[str, list[int]] = content.get("offline", {})
    return BrokerInfo(
        broker_id,
        content.get("rack"),
        endpoints,
        epoch,
        bool(content.get("shutting_down")),
        {topic: tuple(partitions) for topic, partitions in offline.items()},
    )


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _separator, address = text.partition("://")
    host, _colon, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), int(port), protocols.get(listener, listener))


def cluster_id_json(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def controller_json(broker_id: int, now_ms: int) -> bytes:
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def parse_controller(data: bytes) -> int:
    return int(json.loads(data)["brokerid"])


def producer_ids_json(broker_id: int, block: range) -> bytes:
    content = {"version": 1, "broker": broker_id, "block_start": str(block[0]), "block_end": str(block[-1])}
    return _dump(content)


def parse_producer_ids(data: bytes) -> range:
    """The block that was given out last; an empty one before the first."""
    if not data:
        return range(0)
    content = json.loads(data)
    return range(int(content["block_start"]), int(content["block_end"]) + 1)
