"""Names that public dashboards and alert rules ask for, and the queries of ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).parents[3] / "docs" / "monitoring"
_NAME = re.compile(r"\b(?:kafka|moldau|process)_[a-z_]+")

STRIMZI = tuple(
    f"{prefix}{name}"
    for prefix, names in {
        "kafka_server_brokertopicmetrics_": (
            "messagesin_total bytesin_total bytesout_total totalproducerequests_total failedproducerequests_total "
            "totalfetchrequests_total failedfetchrequests_total"
        ),
        "kafka_server_replicamanager_": (
            "partitioncount leadercount underreplicatedpartitions underminisrpartitioncount atminisrpartitioncount "
            "offlinereplicacount isrshrinks_total isrexpands_total failedisrupdates_total"
        ),
        "kafka_controller_kafkacontroller_": (
            "activecontrollercount offlinepartitionscount globaltopiccount globalpartitioncount fencedbrokercount "
            "activebrokercount preferredreplicaimbalancecount"
        ),
        "kafka_controller_controllerstats_": "uncleanleaderelections_total",
        "kafka_cluster_partition_": "underminisr atminisr replicascount underreplicated insyncreplicascount",
        "kafka_log_log_": "size logstartoffset logendoffset numlogsegments",
        "kafka_log_logmanager_": "offlinelogdirectorycount",
        "kafka_server_kafkarequesthandlerpool_": "requesthandleravgidle_percent",
        "kafka_network_socketserver_": "networkprocessoravgidle_percent",
        "kafka_server_socket_server_metrics_": "connection_count",
        "kafka_server_kafkaserver_linux_disk_": "read_bytes write_bytes",
        "process_": "open_fds",
        "kafka_server_raftmetrics_": (
            "current_leader current_vote current_epoch high_watermark log_end_offset commit_latency_avg "
            "append_records_rate fetch_records_rate current_state"
        ),
    }.items()
    for name in names.split()
)
"""Metrics of the boards of Strimzi for Kafka and for KRaft, and of its alert rules."""

KAFKA_EXPORTER = (
    "kafka_consumergroup_lag",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_members",
    "kafka_topic_partitions",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_under_replicated_partition",
    "kafka_brokers",
    "kafka_broker_info",
)
"""Metrics of kafka_exporter and of the boards that are made for it."""


def names_in(query: str) -> set[str]:
    return set(_NAME.findall(query))


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return board


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Titles of panels, each with a query of it."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def alert_queries() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", (MONITORING / "alerts.yml").read_text(), re.MULTILINE)
