"""`moldau configs describe topics NAME`: the work of kafka-configs, whose options are understood as well.

Settings of users, clients and addresses (quotas, passwords) are no settings in this sense, and are refused by name.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from moldau.cli.actions import Action, Command
from moldau.cli.cluster_queries import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CONFIG_SOURCES,
    GROUP,
    TOPIC,
    Resource,
    alter_configs,
    config_resources,
    describe_configs,
)
from moldau.cli.common import ensure_known
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.output import say, show, show_json
from moldau.cli.partition_queries import existing_partitions, partitions_of
from moldau.cli.places import read_properties
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.messages.k32_describe_configs import DescribeConfigsResourceResult


class Kind(NamedTuple):
    """A kind of entities that have settings."""

    resource: int
    noun: str
    source: int
    """The number of the source of settings that were made for the entity itself."""


KINDS = {
    "topics": Kind(TOPIC, "topic", 1),
    "brokers": Kind(BROKER, "broker", 2),
    "broker-loggers": Kind(BROKER_LOGGER, "broker-logger", 6),
    "groups": Kind(GROUP, "group", 8),
    "client-metrics": Kind(CLIENT_METRICS, "client-metric", 7),
}
DEFAULT_BROKER_SOURCE = 3
REFUSED = ("users", "clients", "ips")
SHORT = {"topic": "topics", "broker": "brokers", "broker_logger": "broker-loggers"} | {
    "group": "groups",
    "client_metrics": "client-metrics",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _entity_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("words", nargs="*", metavar="TYPE [NAME]", help="the same as --entity-type and --entity-name")
    made.add_argument("--entity-type", action="append", default=[], metavar="TYPE", help=f"one of {', '.join(KINDS)}")
    made.add_argument("--entity-name", metavar="NAME", help="the topic, the broker's id or the group")
    made.add_argument("--entity-default", action="store_true", help="what holds for all brokers")
    for each in SHORT:
        made.add_argument(f"--{each.replace('_', '-')}", metavar="NAME", help=f"the same as {SHORT[each]} NAME")
    made.add_argument("--broker-defaults", action="store_true", help="the same as brokers --entity-default")
    for each in REFUSED:
        made.add_argument(f"--{each[:-1]}", dest=each, metavar="NAME", help=argparse.SUPPRESS)
        made.add_argument(f"--{each[:-1]}-defaults", dest=each, action="store_const", const="", help=argparse.SUPPRESS)


def _describe_options(made: argparse.ArgumentParser) -> None:
    _entity_options(made)
    made.add_argument("--all", action="store_true", help="defaults, too")


def _alter_options(made: argparse.ArgumentParser) -> None:
    _entity_options(made)
    made.add_argument(
        "--add-config", action="append", default=[], metavar="K=V,K=[V,V]", help="give settings these values"
    )
    made.add_argument("--add-config-file", metavar="FILE", help="give settings the values of a properties file")
    made.add_argument(
        "--delete-config", action="append", default=[], metavar="K,K", help="give settings their defaults again"
    )


# --- the actions ---


def _list(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    if name is not None:
        raise WrongUsage("list takes a type only: `moldau configs describe` shows one entity")
    with wire_cluster(options) as cluster:
        names = _all_names(cluster, kind)
    show(options, names, names)
    return 0


def _describe(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    with wire_cluster(options) as cluster:
        names = [name] if name is not None else _all_names(cluster, kind)
        if kind.resource == BROKER and name is None:
            names.append("")
        if kind.resource == TOPIC and name is not None:
            existing_partitions(cluster, [name])
        found = [(each, _settings(cluster, kind, each, options.all)) for each in names]
    if options.json:
        show_json([_row(kind, each, entries) for each, entries in found])
        return 0
    for each, entries in found:
        say(_headline(kind, each, options.all))
        for entry in entries:
            say(f"  {entry.name}={_value(entry)} sensitive={_java(entry.is_sensitive)} synonyms={{{_synonyms(entry)}}}")
    return 0


def _alter(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    if name is None:
        raise WrongUsage("name the entity: --entity-name NAME, or --entity-default for all brokers")
    added = read_properties(options.add_config_file) if options.add_config_file else {}
    for text in options.add_config:
        added.update(assignments(text))
    deleted = [key.strip() for text in options.delete_config for key in text.split(",") if key.strip()]
    if not added and not deleted:
        raise WrongUsage("say what to alter: --add-config NAME=VALUE or --delete-config NAME")
    twice = sorted(set(added) & set(deleted))
    if twice:
        raise WrongUsage(f"{twice[0]} is both added and deleted")
    changes: dict[str, str | None] = {**added, **dict.fromkeys(deleted)}
    with wire_cluster(options) as cluster:
        if deleted and name and kind.resource in (TOPIC, BROKER):  # whose settings are described all
            ensure_known(deleted, [each.name for each in describe_configs(cluster, (kind.resource, name))])
        alter_configs(cluster, (kind.resource, name), changes, options.dry_run)
    whom = _whom(kind, name)
    line = f"Config for {whom} can be updated." if options.dry_run else f"Completed updating config for {whom}."
    told = {"entityType": _type(kind), "entityName": name, "configs": changes, "altered": not options.dry_run}
    show(options, told, [line])
    return 0


# --- what they are made of ---


def assignments(text: str) -> dict[str, str]:
    """`a=1,b=[x,y]` as a dictionary: a value in brackets may have commas, as in Kafka's tool."""
    found = {}
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"--add-config {text!r:.80} is not of the form name=value,name=[value,value]")
        value = value.strip()
        found[name.strip()] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if not found:
        raise WrongUsage("--add-config is empty")
    return found


def _entity(options: argparse.Namespace) -> tuple[Kind, str | None]:
    """The kind and the name that the options give; the name is empty for what holds for all brokers."""
    if len(options.words) > 2:
        raise WrongUsage(f"one entity at a time: {' '.join(options.words[2:])!r} is too much")
    types = [*options.entity_type, *options.words[:1]]
    names = [*([options.entity_name] if options.entity_name is not None else []), *options.words[1:]]
    for option, kind in SHORT.items():
        value = getattr(options, option)
        if value is not None:
            types.append(kind)
            names.append(value)
    types += [each for each in REFUSED if getattr(options, each) is not None]
    if options.broker_defaults:
        types.append("brokers")
        options.entity_default = True
    if not types:
        raise WrongUsage(f"say of what: {', '.join(KINDS)}")
    for each in types:
        _kind(each)
    if len(set(types)) > 1 or len(names) > 1:
        raise WrongUsage("one entity at a time")
    return _kind(types[0]), _name(options, types[0], names)


def _kind(named: str) -> Kind:
    if named in REFUSED:
        raise ToolError(f"settings of {named} are quotas and passwords, which this command does not alter")
    if named not in KINDS:
        raise WrongUsage(f"there is no entity type {named!r}: say {', '.join(KINDS)}")
    return KINDS[named]


def _name(options: argparse.Namespace, kind: str, names: Sequence[str]) -> str | None:
    if options.entity_default:
        if kind != "brokers" or names:
            raise WrongUsage("--entity-default is for brokers, without a name")
        return ""
    if names and not names[0]:
        raise WrongUsage("the name of the entity is empty")
    return names[0] if names else None


def _all_names(cluster: WireCluster, kind: Kind) -> list[str]:
    if kind.resource == TOPIC:
        return list(dict.fromkeys(topic for topic, _ in partitions_of(cluster)))
    if kind.resource in (BROKER, BROKER_LOGGER):
        return [str(each) for each in cluster.brokers()]
    return config_resources(cluster, kind.resource)


def _settings(cluster: WireCluster, kind: Kind, name: str, is_all: bool) -> list[DescribeConfigsResourceResult]:
    resource: Resource = (kind.resource, name)
    source = DEFAULT_BROKER_SOURCE if kind.resource == BROKER and not name else kind.source
    return [each for each in describe_configs(cluster, resource) if is_all or each.config_source == source]


def _headline(kind: Kind, name: str, is_all: bool) -> str:
    if not name:
        return "Default configs for brokers in the cluster are:"
    return f"{'All' if is_all else 'Dynamic'} configs for {kind.noun} {name} are:"


def _whom(kind: Kind, name: str) -> str:
    return f"{kind.noun} {name}" if name else "all brokers"


def _type(kind: Kind) -> str:
    return next(name for name, each in KINDS.items() if each == kind)


def _value(entry: DescribeConfigsResourceResult) -> str:
    return "null" if entry.value is None else entry.value


def _java(value: bool) -> str:
    return "true" if value else "false"


def _synonyms(entry: DescribeConfigsResourceResult) -> str:
    return ", ".join(
        f"{CONFIG_SOURCES.get(each.source, 'UNKNOWN')}:{each.name}={'null' if each.value is None else each.value}"
        for each in entry.synonyms
    )


def _row(kind: Kind, name: str, entries: Iterable[DescribeConfigsResourceResult]) -> dict[str, Any]:
    return {
        "entityType": _type(kind),
        "entityName": name,
        "configs": [
            {
                "name": each.name,
                "value": each.value,
                "source": CONFIG_SOURCES.get(each.config_source, "UNKNOWN"),
                "isSensitive": each.is_sensitive,
                "isReadOnly": each.read_only,
            }
            for each in entries
        ],
    }


COMMAND = Command(
    "configs",
    "List, describe and alter settings of topics, brokers, their loggers, groups and client metrics.",
    [
        Action(
            "list",
            "names of the entities of a type",
            _list,
            _entity_options,
            ["list topics", "list groups --json"],
        ),
        Action(
            "describe",
            "settings of an entity, or of all of a type",
            _describe,
            _describe_options,
            [
                "describe topics visits",
                "describe brokers 1 --all",
                "describe brokers --entity-default",
                "--describe --entity-type topics --entity-name visits",
            ],
            flags=["--describe"],
        ),
        Action(
            "alter",
            "change settings",
            _alter,
            _alter_options,
            [
                "alter topics visits --add-config retention.ms=86400000,cleanup.policy=[compact,delete]",
                "alter brokers 1 --delete-config log.retention.ms --dry-run",
                "--alter --entity-type brokers --entity-default --add-config log.segment.bytes=7654321",
            ],
            flags=["--alter"],
            tries=True,
        ),
    ],
)
