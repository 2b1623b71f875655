"""`moldau topics create NAME`: the work of kafka-topics, whose options are understood as well."""

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from moldau.cli.actions import Action, Command
from moldau.cli.common import (
    REQUEST_TIMEOUT_S,
    client_settings,
    ensure_known,
    pairs,
    positive,
    whole,
)
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.output import confirm, say, show, show_json
from moldau.core.arguments import likely

KNOWN_WAIT_S = 5.0
KNOWN_EVERY_S = 0.02
"""Time that a new topic is waited for, and between two looks."""

CONTROLLER_TIMEOUTS_S = (3.0, 6.0, REQUEST_TIMEOUT_S)
NAMES_IN_A_QUESTION_MAX = 5
PARTITIONS, COPIES = whole(18, 1, 100_000), whole(15, 1, 10_000)
"""Readers of numbers; librdkafka takes no more of either."""
ALTER_SETS, ALTER_DELETES = AlterConfigOpType.SET, AlterConfigOpType.DELETE


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _topic_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="a name, or a,b,c, or a regular expression")


def _list_options(made: argparse.ArgumentParser) -> None:
    _topic_option(made)
    made.add_argument("--exclude-internal", action="store_true", help="leave out internal topics")


def _create_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="the name")
    made.add_argument("--partitions", type=PARTITIONS, metavar="N", help="how many partitions (default: the broker's)")
    made.add_argument(
        "--replication-factor", type=COPIES, default=-1, metavar="N", help="copies of each (default: the broker's)"
    )
    made.add_argument("--replica-assignment", metavar="0:1,1:2", help="the brokers of each partition, leader first")
    made.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a setting of the new topic")
    made.add_argument("--if-not-exists", action="store_true", help="an existing topic is not an error")


def _describe_options(made: argparse.ArgumentParser) -> None:
    _list_options(made)
    _if_exists_option(made)
    made.add_argument("--topics-with-overrides", action="store_true", help="only topics with settings of their own")
    made.add_argument("--under-replicated-partitions", action="store_true", help="only these partitions")
    made.add_argument("--unavailable-partitions", action="store_true", help="only partitions without a leader")
    made.add_argument(
        "--under-min-isr-partitions", action="store_true", help="only partitions that take no acks=all writes"
    )
    made.add_argument(
        "--at-min-isr-partitions", action="store_true", help="only partitions that may lose no in-sync replica more"
    )
    made.add_argument("--topic-id", metavar="ID", help="the topic of this id")
    made.add_argument("--partition-size-limit-per-response", type=positive, metavar="N", help=argparse.SUPPRESS)


def _alter_options(made: argparse.ArgumentParser) -> None:
    _topic_option(made)
    _if_exists_option(made)
    made.add_argument("--partitions", type=PARTITIONS, metavar="N", help="how many there are to be in all")
    made.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="give a setting this value")
    made.add_argument("--delete-config", action="append", default=[], metavar="NAME", help="give it the default again")


def _add_partitions_options(made: argparse.ArgumentParser) -> None:
    _topic_option(made)
    _if_exists_option(made)
    made.add_argument(
        "--count", "--partition", type=PARTITIONS, default=1, metavar="N", help="how many more (default 1)"
    )


def _delete_options(made: argparse.ArgumentParser) -> None:
    _topic_option(made)
    _if_exists_option(made)


def _if_exists_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--if-exists", action="store_true", help="a missing topic is not an error")


# --- the actions ---


def _list(options: argparse.Namespace) -> int:
    names = _matching(_admin(options), options)
    show(options, names, names)
    return 0


def _create(options: argparse.Namespace) -> int:
    assignment = _assignment(options.replica_assignment)
    topic = NewTopic(
        options.topic,
        num_partitions=len(assignment) if assignment else options.partitions or -1,
        config=pairs(options.config),
        # librdkafka takes one or the other
        **({"replica_assignment": assignment} if assignment else {"replication_factor": options.replication_factor}),
    )
    admin = _admin(options)  # kept: its answers die with it
    made = admin.create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S, validate_only=options.dry_run)
    is_new = True
    try:
        made[options.topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        if not options.if_not_exists:
            raise ToolError(f"topic {options.topic!r} already exists (fine with --if-not-exists)") from error
        is_new = False
    if is_new and not options.dry_run:
        _wait_until_known(admin, options.topic)
    line = f"Topic {options.topic} can be created." if options.dry_run else f"Created topic {options.topic}."
    show(options, {"topic": options.topic, "created": is_new and not options.dry_run}, [line] if is_new else [])
    return 0


def _wait_until_known(admin: AdminClient, topic: str) -> None:
    """Wait until the broker that is asked knows a new topic. Apache Kafka's answer comes from its controller, and the
    next command would be told that there is no such topic."""
    deadline = time.monotonic() + KNOWN_WAIT_S
    while time.monotonic() < deadline:
        if admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].error is None:
            return
        time.sleep(KNOWN_EVERY_S)


def _alter(options: argparse.Namespace) -> int:
    if not (options.partitions or options.config or options.delete_config):
        raise WrongUsage("say what to alter: --partitions, --config or --delete-config")
    admin = _admin(options)
    names = _existing(admin, options)
    if options.partitions:
        _grow(admin, dict.fromkeys(names, options.partitions), options)
    settings = {**pairs(options.config), **dict.fromkeys(options.delete_config)}
    if "" in settings:
        raise WrongUsage("--delete-config is empty: name the setting that is to have its default again")
    if settings and names:
        _set(admin, names, settings, options)
    told = [f"Topic {name} has {options.partitions} partitions." for name in names if options.partitions]
    told += [f"Topic {name} has {len(settings)} settings altered." for name in names if settings]
    show(
        options,
        [{"topic": name, "partitions": options.partitions, "configs": settings} for name in names],
        told if not options.dry_run else [f"Topic {name} can be altered." for name in names],
    )
    return 0


def _add_partitions(options: argparse.Namespace) -> int:
    admin = _admin(options)
    names = _existing(admin, options)
    present = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    counts = {name: len(present[name].partitions) + options.count for name in names}
    _grow(admin, counts, options)
    verb = "can have" if options.dry_run else "has"
    lines = [f"Topic {name} {verb} {count} partitions." for name, count in counts.items()]
    show(options, [{"topic": name, "partitions": count} for name, count in counts.items()], lines)
    return 0


def _delete(options: argparse.Namespace) -> int:
    admin = _admin(options)
    names = _existing(admin, options)
    if names and not options.dry_run:
        confirm(options, f"Delete {_counted(names)} with all records?")
        _finish(admin.delete_topics(names, operation_timeout=REQUEST_TIMEOUT_S))
    verb = "Would delete" if options.dry_run else "Deleted"
    told = [{"topic": name, "deleted": not options.dry_run} for name in names]
    show(options, told, [f"{verb} topic {name}." for name in names])
    return 0


def _describe(options: argparse.Namespace) -> int:
    admin = _admin(options)
    names = _existing(admin, options) if options.topic else _matching(admin, options)
    settings = _settings(options, names) if names else {}
    named = TopicCollection(names)
    found: dict[str, TopicDescription] = {}
    if names:
        found = _answers(options, lambda admin, wait_s: admin.describe_topics(named, request_timeout=wait_s))
    topics = [
        (
            each,
            [entry for entry in settings[each.name].values() if not entry.is_default],
            _wanted(each, settings, options),
        )
        for each in found.values()
        if options.topic_id in (None, _kafka_id(each.topic_id))
    ]
    if options.topic_id is not None and not topics and not options.if_exists:
        raise ToolError(f"there is no topic with the id {options.topic_id!r}: `moldau topics describe` shows ids")
    if options.json:
        rows = [_row(*each) for each in topics]
        show_json([row for row in rows if row["partitions"] or not _asks_for_some(options)])
        return 0
    for topic, own_settings, wanted in topics:
        for line in _description(topic, own_settings, wanted, options):
            say(line)
    return 0


# --- what they are made of ---


def _matching(admin: AdminClient, options: argparse.Namespace) -> list[str]:
    """Topics that --topic names: the one of that name, or all that match it as an expression."""
    present = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    names = sorted(
        name for name in present if not (getattr(options, "exclude_internal", False) and name.startswith("__"))
    )
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
        meant = likely(options.topic, admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
        hint = meant or ": `moldau topics --list` shows those that do"
        raise ToolError(f"topic {options.topic!r} does not exist{hint}")
    return names


def _admin(options: argparse.Namespace) -> AdminClient:
    return AdminClient(client_settings(options, {}))


def _counted(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_IN_A_QUESTION_MAX])
    rest = f" and {len(names) - NAMES_IN_A_QUESTION_MAX} more" if len(names) > NAMES_IN_A_QUESTION_MAX else ""
    return f"{'topic' if len(names) == 1 else f'{len(names)} topics:'} {shown}{rest}"


def _grow(admin: AdminClient, counts: dict[str, int], options: argparse.Namespace) -> None:
    wanted = [NewPartitions(name, count) for name, count in counts.items()]
    if wanted:
        _finish(admin.create_partitions(wanted, validate_only=options.dry_run))


def _set(
    admin: AdminClient, names: Sequence[str], settings: dict[str, str | None], options: argparse.Namespace
) -> None:
    """Give settings of topics these values, and the default where there is none."""
    for known in _settings(options, names).values() if options.delete_config else ():
        ensure_known(options.delete_config, list(known))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    for resource in resources:
        for key, value in settings.items():
            operation = ALTER_DELETES if value is None else ALTER_SETS
            resource.add_incremental_config(ConfigEntry(key, value or "", incremental_operation=operation))
    _finish(admin.incremental_alter_configs(resources, validate_only=options.dry_run))


def _row(topic: TopicDescription, settings: list[ConfigEntry], wanted: Sequence[Any]) -> dict[str, Any]:
    """A topic, for programs."""
    return {
        "topic": topic.name,
        "topicId": _kafka_id(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in sorted(settings, key=lambda entry: entry.name)},
        "partitions": [
            {
                "partition": each.id,
                "leader": None if _leader(each) == "none" else each.leader.id,
                "replicas": [node.id for node in each.replicas],
                "isr": [node.id for node in each.isr],
            }
            for each in wanted
        ],
    }


def _answers(
    options: argparse.Namespace, ask: Callable[[AdminClient, float], Mapping[Any, Future[Any]]]
) -> dict[Any, Any]:
    """The answers to a question. While the controller changes, librdkafka waits until it hears of the new one, mostly
    in vain; another client hears of it at once."""
    for timeout_s in CONTROLLER_TIMEOUTS_S:
        admin = _admin(options)  # kept: its answers die with it
        asked = ask(admin, timeout_s)
        try:
            return {about: future.result() for about, future in asked.items()}
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT or timeout_s == CONTROLLER_TIMEOUTS_S[-1]:
                raise
    return {}


def _finish(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def _assignment(text: str | None) -> list[list[int]]:
    """The replicas of each partition from Kafka's form: brokers joined by colons, partitions by commas."""
    if text is None:
        return []
    broker_id = whole(32)
    try:
        return [[broker_id(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise WrongUsage(f"--replica-assignment {text!r} is not of the form 0:1,1:2") from error


def _settings(options: argparse.Namespace, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
    """The settings of each topic, by name."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found = _answers(options, lambda admin, wait_s: admin.describe_configs(resources, request_timeout=wait_s))
    return {resource.name: entries for resource, entries in found.items()}


def _description(
    topic: TopicDescription, settings: list[ConfigEntry], wanted: Sequence[Any], options: argparse.Namespace
) -> Iterator[str]:
    """Kafka's lines: one for the topic, one for each partition."""
    chosen = [] if options.topics_with_overrides else wanted
    if not _asks_for_some(options) and (settings or not options.topics_with_overrides):
        yield _headline(topic, settings)
    for partition in chosen:
        replicas, in_sync = _ids(partition.replicas), _ids(partition.isr)
        place = f"\tTopic: {topic.name}\tPartition: {partition.id}\tLeader: {_leader(partition)}"
        yield f"{place}\tReplicas: {replicas}\tIsr: {in_sync}"


def _asks_for_some(options: argparse.Namespace) -> bool:
    return bool(
        options.under_replicated_partitions
        or options.unavailable_partitions
        or options.under_min_isr_partitions
        or options.at_min_isr_partitions
    )


def _wanted(
    topic: TopicDescription, settings: dict[str, dict[str, ConfigEntry]], options: argparse.Namespace
) -> list[Any]:
    """The partitions of a topic that the options ask for."""
    entry = settings[topic.name].get("min.insync.replicas")
    minimum = int(entry.value or 1) if entry is not None else 1
    return [each for each in topic.partitions if _is_wanted(each, minimum, options)]


def _is_wanted(partition: Any, minimum: int, options: argparse.Namespace) -> bool:
    in_sync = len(partition.isr)
    return (
        not _asks_for_some(options)
        or (options.under_replicated_partitions and in_sync < len(partition.replicas))
        or (options.unavailable_partitions and _leader(partition) == "none")
        or (options.under_min_isr_partitions and in_sync < minimum)
        or (options.at_min_isr_partitions and in_sync == minimum)
    )


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


def _kafka_id(topic_id: object) -> str:
    """The id as Kafka writes it, in base64 for URLs; librdkafka writes plain base64."""
    return str(topic_id).replace("+", "-").replace("/", "_")


COMMAND = Command(
    "topics",
    "List, create, describe, alter and delete topics.",
    [
        Action(
            "list",
            "names of the topics",
            _list,
            _list_options,
            ["list", "list --exclude-internal", "list 'visits-.*' --json", "--list --bootstrap-server localhost:9092"],
            noun="topic",
            flags=["--list"],
        ),
        Action(
            "create",
            "create a topic",
            _create,
            _create_options,
            [
                "create visits --partitions 3 --replication-factor 1",
                "create visits --config retention.ms=86400000 --dry-run",
                "--create --topic visits --if-not-exists",
            ],
            noun="topic",
            required=True,
            flags=["--create"],
            tries=True,
        ),
        Action(
            "describe",
            "partitions, leaders, replicas and settings",
            _describe,
            _describe_options,
            ["describe visits", "describe --under-replicated-partitions", "--describe --topic visits"],
            noun="topic",
            flags=["--describe"],
        ),
        Action(
            "alter",
            "change settings, or the number of partitions",
            _alter,
            _alter_options,
            [
                "alter visits --partitions 6",
                "alter visits --config retention.ms=60000 --delete-config segment.ms",
                "--alter --topic visits --partitions 6",
            ],
            noun="topic",
            required=True,
            flags=["--alter"],
            tries=True,
        ),
        Action(
            "add-partitions",
            "add partitions to those that there are",
            _add_partitions,
            _add_partitions_options,
            ["add-partitions visits --count 3"],
            noun="topic",
            required=True,
            tries=True,
        ),
        Action(
            "delete",
            "delete topics with their records",
            _delete,
            _delete_options,
            ["delete visits", "delete 'test-.*' --dry-run", "--delete --topic visits --if-exists"],
            noun="topic",
            required=True,
            flags=["--delete"],
            destroys=True,
            tries=True,
        ),
    ],
    config_option="--admin.config",
)
