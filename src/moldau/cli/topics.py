"""`moldau topics`: the work of kafka-topics, with the same options; also as `moldau topics create NAME`."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from moldau.cli.common import (
    REQUEST_TIMEOUT_S,
    ToolError,
    add_client_options,
    client_settings,
    pairs,
    parser,
    positive,
    run,
)

ACTIONS = ("list", "create", "describe", "alter", "delete")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parse(argv)
    return run(lambda: _run(options))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    made = _parser()
    options = made.parse_intermixed_args(argv)
    words = list(options.words)
    if options.action is None and words and words[0] in ACTIONS:
        options.action = words.pop(0)
    if options.action is None:
        made.error(f"say what to do: {', '.join(ACTIONS)}")
    if options.topic is None and words:
        options.topic = words.pop(0)
    if words:
        made.error(f"one topic at a time: {' '.join(words)!r} is too much (--topic also takes a,b,c)")
    if options.topic is None and options.action in ("create", "alter", "delete"):
        made.error(f"--{options.action} needs --topic")
    if options.partitions is None and options.action == "alter":
        made.error("--alter needs --partitions")
    return options


def _parser() -> argparse.ArgumentParser:
    made = parser("topics", "List, create, describe, alter and delete topics.")
    add_client_options(made, "--admin.config")
    action = made.add_mutually_exclusive_group()
    for name in ACTIONS:
        action.add_argument(f"--{name}", dest="action", action="store_const", const=name)
    made.add_argument("words", nargs="*", metavar="WORD", help="the action and the topic, as in `create visits`")
    made.add_argument("--topic", help="a name; except with --create also a regular expression or a,b,c")
    made.add_argument("--partitions", type=positive, metavar="N", help="how many partitions (default: the broker's)")
    made.add_argument(
        "--replication-factor", type=positive, default=-1, metavar="N", help="copies of each (default: the broker's)"
    )
    made.add_argument("--replica-assignment", metavar="0:1,1:2", help="the brokers of each partition, leader first")
    made.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a setting of the new topic")
    made.add_argument("--if-not-exists", action="store_true", help="with --create: an existing topic is not an error")
    made.add_argument("--if-exists", action="store_true", help="with the others: a missing topic is not an error")
    made.add_argument("--exclude-internal", action="store_true", help="leave out internal topics")
    made.add_argument("--topics-with-overrides", action="store_true", help="--describe: topics with own settings only")
    made.add_argument("--under-replicated-partitions", action="store_true", help="--describe: only these partitions")
    made.add_argument("--unavailable-partitions", action="store_true", help="--describe: only those without a leader")
    return made


def _run(options: argparse.Namespace) -> int:
    admin = AdminClient(client_settings(options, {}))
    actions = {"list": _list, "create": _create, "describe": _describe, "alter": _alter, "delete": _delete}
    actions[options.action](admin, options)
    return 0


# --- the actions ---


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    for name in _matching(admin, options):
        _say(name)


def _create(admin: AdminClient, options: argparse.Namespace) -> None:
    assignment = _assignment(options.replica_assignment)
    topic = NewTopic(
        options.topic,
        num_partitions=len(assignment) if assignment else options.partitions or -1,
        config=pairs(options.config),
        # librdkafka takes one or the other
        **({"replica_assignment": assignment} if assignment else {"replication_factor": options.replication_factor}),
    )
    [created] = admin.create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S).values()
    try:
        created.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        if not options.if_not_exists:
            raise ToolError(f"topic {options.topic!r} already exists (fine with --if-not-exists)") from error
    else:
        _say(f"Created topic {options.topic}.")


def _alter(admin: AdminClient, options: argparse.Namespace) -> None:
    names = _existing(admin, options)
    _finish(admin.create_partitions([NewPartitions(name, options.partitions) for name in names]) if names else {})
    for name in names:
        _say(f"Topic {name} has {options.partitions} partitions.")


def _delete(admin: AdminClient, options: argparse.Namespace) -> None:
    names = _existing(admin, options)
    _finish(admin.delete_topics(names, operation_timeout=REQUEST_TIMEOUT_S) if names else {})
    for name in names:
        _say(f"Deleted topic {name}.")


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    names = _existing(admin, options) if options.topic else _matching(admin, options)
    if not names:
        return
    descriptions = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S)
    settings = _settings(admin, names)
    for name in names:
        for line in _description(descriptions[name].result(), settings[name], options):
            _say(line)


# --- what they are made of ---


def _matching(admin: AdminClient, options: argparse.Namespace) -> list[str]:
    """Topics that --topic names: the one of that name, or all that match it as an expression."""
    present = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    names = sorted(name for name in present if not (options.exclude_internal and name.startswith("__")))
    if options.topic is None or options.topic in present:
        return names if options.topic is None else [options.topic]
    try:
        expression = re.compile(options.topic.replace(",", "|").replace(" ", ""))
    except re.error as error:
        raise ToolError(f"{options.topic!r} is neither a topic nor a regular expression: {error}") from error
    return [name for name in names if expression.fullmatch(name)]


def _existing(admin: AdminClient, options: argparse.Namespace) -> list[str]:
    names = _matching(admin, options)
    if not names and not options.if_exists:
        raise ToolError(f"topic {options.topic!r} does not exist: `moldau topics --list` shows those that do")
    return names


def _finish(futures: dict[str, Any]) -> None:
    for future in futures.values():
        future.result()


def _assignment(text: str | None) -> list[list[int]]:
    """The replicas of each partition from Kafka's form: brokers joined by colons, partitions by commas."""
    if text is None:
        return []
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError as error:
        raise ToolError(f"--replica-assignment {text!r} is not of the form 0:1,1:2") from error


def _settings(admin: AdminClient, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
    """The settings of each topic that are not a default."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    return {
        resource.name: [entry for entry in future.result().values() if not entry.is_default]
        for resource, future in futures.items()
    }


def _description(topic: TopicDescription, settings: list[ConfigEntry], options: argparse.Namespace) -> Iterator[str]:
    """Kafka's lines: one for the topic, one for each partition."""
    chosen = [partition for partition in topic.partitions if _is_wanted(partition, options)]
    if options.topics_with_overrides:
        chosen = []
    if not _asks_for_some(options) and (settings or not options.topics_with_overrides):
        yield _headline(topic, settings)
    for partition in chosen:
        replicas, in_sync = _ids(partition.replicas), _ids(partition.isr)
        place = f"\tTopic: {topic.name}\tPartition: {partition.id}\tLeader: {_leader(partition)}"
        yield f"{place}\tReplicas: {replicas}\tIsr: {in_sync}"


def _asks_for_some(options: argparse.Namespace) -> bool:
    return bool(options.under_replicated_partitions or options.unavailable_partitions)


def _is_wanted(partition: Any, options: argparse.Namespace) -> bool:
    under_replicated = options.under_replicated_partitions and len(partition.isr) < len(partition.replicas)
    unavailable = options.unavailable_partitions and _leader(partition) == "none"
    return not _asks_for_some(options) or under_replicated or unavailable


def _leader(partition: Any) -> str:
    return "none" if partition.leader is None or partition.leader.id < 0 else str(partition.leader.id)


def _headline(topic: TopicDescription, settings: list[ConfigEntry]) -> str:
    replication = len(topic.partitions[0].replicas) if topic.partitions else 0
    configs = ",".join(f"{entry.name}={entry.value}" for entry in sorted(settings, key=lambda entry: entry.name))
    return (
        f"Topic: {topic.name}\tTopicId: {_kafka_id(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replication}\tConfigs: {configs}"
    )


def _ids(nodes: Iterable[Any]) -> str:
    return ",".join(str(node.id) for node in nodes)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _kafka_id(topic_id: object) -> str:
    """The id as Kafka writes it, in base64 for URLs; librdkafka writes plain base64."""
    return str(topic_id).replace("+", "-").replace("/", "_")
