"""Paths and contents of the tree: Kafka's own layout of the ZooKeeper era, so that its tools read ours."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, BrokerInfo, Endpoint, PartitionImage

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURES = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"
SUCCESSIONS = "/successions"
"""Node of our own. Its version grows whenever a topic is deleted or a broker registers: a name may mean something else
then."""
WHOLE_CLUSTER = "<default>"

PERSISTENT_PATHS = (
    "/admin/delete_topics",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    BROKER_CONFIGS,
    "/config/changes",
    CLIENT_METRICS_CONFIGS,
    "/config/clients",
    GROUP_CONFIGS,
    "/config/ips",
    TOPIC_CONFIGS,
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    PRODUCER_IDS,
    "/log_dir_event_notification",
    SUCCESSIONS,
)


class MalformedNode(ValueError):
    """Error: the content of a node is not what any version of Kafka writes."""


_TOPIC_ID = re.compile(rb'"topic_id" *: *"([A-Za-z0-9_-]*)"')

NO_STATE = PartitionImage(NO_LEADER, -1, (), (), -1)
"""A partition that no controller has looked at yet."""


class LogEnd(NamedTuple):
    """The end of a log: its last leader epoch, and the offset after its last record."""

    leader_epoch: int
    end_offset: int


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions. Its data is a copy of the topic's own node as it should be, with the id that
    tools from before KIP-516 leave out there: they leave this node alone, and it goes with the topic."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_config_path(entity: str) -> str:
    """The path of a broker's configuration; `entity` is the broker's id as text, or "" for the whole cluster."""
    return f"{BROKER_CONFIGS}/{entity or WHOLE_CLUSTER}"


def group_config_path(group: str) -> str:
    """The path of a group's configuration. Any text may name a group, also one with slashes or of dots alone, which
    ZooKeeper would not take."""
    return f"{GROUP_CONFIGS}/{_entity(group)}"


def client_metrics_config_path(name: str) -> str:
    """The path of a subscription to clients' metrics, which any text may name, too."""
    return f"{CLIENT_METRICS_CONFIGS}/{_entity(name)}"


def _entity(name: str) -> str:
    from urllib.parse import quote  # most clusters have no configuration of a group

    return quote(name, safe="").replace(".", "%2E")


def parse_entity(entity: str) -> str:
    """The group or subscription whose configuration is at the node of this name."""
    from urllib.parse import unquote  # see above

    return unquote(entity)


def id_text(id_: bytes) -> str:
    """The text of sixteen bytes as Kafka writes them: 22 characters of base64url."""
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
    """Topic id (None where a tool from before KIP-516 wrote the node) and the replicas of each partition; raises
    MalformedNode."""
    try:
        content = json.loads(data)
        partitions: dict[str, list[int]] = content["partitions"]
        adding: dict[str, list[int]] = content.get("adding_replicas") or {}
        removing: dict[str, list[int]] = content.get("removing_replicas") or {}
        assignment = [
            NO_STATE._replace(
                replicas=_broker_ids(partitions[name]),
                adding=_broker_ids(adding.get(name, ())),
                removing=_broker_ids(removing.get(name, ())),
            )
            for name in map(str, range(len(partitions)))
        ]
        return _topic_id(content), assignment
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no topic's replicas: {error!r}") from error


def parse_topic_id(data: bytes) -> bytes:
    """The id in a topic's node; NO_TOPIC_ID where it has none. Raises MalformedNode.

    The id is looked for in the text: a large topic's replicas would take tens of milliseconds to read, for each change.
    """
    try:
        found = _TOPIC_ID.search(data)
        content = {"topic_id": found[1].decode("ascii")} if found else json.loads(data)
        return _topic_id(content) or NO_TOPIC_ID
    except (ValueError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no topic: {error!r}") from error


def parse_kept_id(data: bytes) -> bytes | None:
    """The topic id at `partitions_path`; None where there is none."""
    try:
        return parse_topic_id(data) if data else None
    except MalformedNode:
        return None


def parse_kept_topic(data: bytes) -> tuple[bytes, list[PartitionImage]] | None:
    """Topic id and replicas at `partitions_path`; None where they are not, or cannot be understood."""
    try:
        topic_id, partitions = parse_topic(data)
    except MalformedNode:
        return None
    return None if topic_id is None else (topic_id, partitions)


def _topic_id(content: Mapping[str, Any]) -> bytes | None:
    text = content.get("topic_id")
    if not text:
        return None
    topic_id = id_bytes(text)
    if len(topic_id) != len(NO_TOPIC_ID):
        raise ValueError(f"topic id {text!r}")
    return topic_id


def _broker_ids(values: Sequence[int]) -> tuple[int, ...]:
    if not all(type(each) is int for each in values):
        raise ValueError(f"broker ids {values!r}")
    return tuple(values)


def state_json(partition: PartitionImage, controller_epoch: int) -> bytes:
    """The JSON of a state, written by hand: a failover writes thousands of these."""
    isr = ",".join(map(str, partition.isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def parse_state(data: bytes, version: int) -> PartitionImage:
    """Leader, epochs and ISR; the replicas are not written here. Raises MalformedNode."""
    try:
        content = json.loads(data)
        leader, epoch = _broker_ids((content["leader"], content["leader_epoch"]))
        return PartitionImage(leader, epoch, _broker_ids(content["isr"]), (), version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no partition's state: {error!r}") from error


def claims_json(claims: Mapping[int, LogEnd]) -> bytes:
    """The JSON with the log ends of replicas, in place of a state that cannot be understood. It is no state itself."""
    return _dump({"version": 1, "claims": {str(broker): list(end) for broker, end in claims.items()}})


def parse_claims(data: bytes) -> dict[int, LogEnd]:
    """The log ends by broker; none where nobody has claimed yet."""
    try:
        claims: dict[str, list[int]] = json.loads(data)["claims"]
        return {int(broker): LogEnd(*_broker_ids(end)) for broker, end in claims.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def parse_controller_epoch(data: bytes) -> int:
    """The controller's epoch; 0 where it cannot be understood: the node's version fences, not the number."""
    return int(data) if data.isdigit() else 0


def config_json(configs: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(configs)})


def parse_config(data: bytes) -> dict[str, str]:
    """Settings by name; raises MalformedNode. Tools before 0.9 may write numbers as such."""
    try:
        config = json.loads(data).get("config") or {} if data else {}
        return {str(name): str(value) for name, value in config.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no configuration: {error!r}") from error


def broker_json(broker: BrokerInfo, now_ms: int) -> bytes:
    """The JSON of a broker; `host` and `port` repeat the first plain address, for tools from before `endpoints`."""
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
    """The broker of a node. Raises MalformedNode."""
    try:
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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no broker: {error!r}") from error


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _separator, address = text.partition("://")
    host, _colon, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), int(port), protocols.get(listener, listener))


def features_json(features: Mapping[str, int]) -> bytes:
    """Finalized features (KIP-584), in the second form of the node."""
    return _dump({"version": 2, "status": 1, "features": dict(features)})


def parse_features(data: bytes) -> dict[str, int]:
    """Levels by feature, none where they are switched off; raises MalformedNode. The first form has a range for each,
    and its upper end counts."""
    try:
        content = json.loads(data)
        features = content["features"] if content["status"] == 1 else {}
        return {
            str(name): int(level["max_version_level"] if isinstance(level, dict) else level)
            for name, level in features.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no features: {error!r}") from error


def cluster_id_json(cluster_id: str, store_id: str) -> bytes:
    """The JSON of the cluster id; `store_id` tells this store from another one with the same cluster id, and Kafka does
    not look at it."""
    return _dump({"version": "1", "id": cluster_id, "store": store_id})


def parse_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def parse_store_id(data: bytes) -> str | None:
    """The store's id; None where Apache Kafka, or an earlier version of this broker, made the store."""
    found = json.loads(data).get("store")
    return None if found is None else str(found)


def controller_json(broker_id: int, now_ms: int) -> bytes:
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def parse_controller(data: bytes) -> int:
    """The controller's broker id; raises MalformedNode. Kafka 0.8.0 wrote the bare number."""
    try:
        content = json.loads(data)
        return int(content if isinstance(content, int) else content["brokerid"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedNode(f"no controller: {error!r}") from error


def producer_ids_json(broker_id: int, block: range) -> bytes:
    content = {"version": 1, "broker": broker_id, "block_start": str(block[0]), "block_end": str(block[-1])}
    return _dump(content)


def parse_producer_ids(data: bytes) -> range:
    """The block that was given out last; an empty one before the first."""
    if not data:
        return range(0)
    content = json.loads(data)
    return range(int(content["block_start"]), int(content["block_end"]) + 1)
