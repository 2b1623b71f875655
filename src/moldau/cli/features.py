"""`moldau features describe|upgrade|downgrade|disable`: the work of kafka-features, with the same options."""

import argparse
from collections.abc import Mapping, Sequence

from moldau.cli.actions import Action, Command
from moldau.cli.cluster_queries import Feature, features_of
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.output import confirm, show
from moldau.cli.refusals import check
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UPDATE_FEATURES_HAS_UPGRADE_TYPES = 1  # KIP-778
LEVEL_MAX = (1 << 15) - 1
OFF = 0


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _describe_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--node-id", type=int, metavar="ID", help="ask this broker")


def _feature_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="may be repeated")


def _upgrade_options(made: argparse.ArgumentParser) -> None:
    _feature_option(made)
    for name in ("--release-version", "--metadata"):
        made.add_argument(name, dest="release", metavar="VERSION", help=argparse.SUPPRESS)


def _downgrade_options(made: argparse.ArgumentParser) -> None:
    _upgrade_options(made)
    made.add_argument("--unsafe", action="store_true", help="also where metadata may be lost by it")


# --- the actions ---


def _describe(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        connection = cluster.any() if options.node_id is None else cluster.broker(options.node_id)
        epoch, found = features_of(connection)
    rows = [
        {
            "feature": each.name,
            "supportedMinVersion": each.supported_min,
            "supportedMaxVersion": each.supported_max,
            "finalizedVersionLevel": each.finalized,
            "epoch": epoch,
        }
        for each in found
    ]
    show(options, rows, [_line(each, epoch) for each in found])
    return 0


def _line(each: Feature, epoch: int) -> str:
    return (
        f"Feature: {each.name}\tSupportedMinVersion: {each.supported_min}\tSupportedMaxVersion: {each.supported_max}"
        f"\tFinalizedVersionLevel: {each.finalized}\tEpoch: {epoch if epoch >= 0 else '-'}"
    )


def _upgrade(options: argparse.Namespace) -> int:
    return _update(options, _levels(options), UPGRADE, "upgraded to")


def _downgrade(options: argparse.Namespace) -> int:
    kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    return _update(options, _levels(options), kind, "downgraded to")


def _disable(options: argparse.Namespace) -> int:
    if any("=" in each for each in options.feature):
        raise WrongUsage("disable takes names only: --feature NAME")
    if options.release is not None:
        _levels(options)
    kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    return _update(options, dict.fromkeys(options.feature, OFF), kind, "disabled")


def _levels(options: argparse.Namespace) -> dict[str, int]:
    """The levels that --feature names."""
    if options.release is not None:
        raise ToolError(
            "levels are not known by release here: name them with --feature NAME=LEVEL (`moldau features describe`)"
        )
    found = {}
    for text in options.feature:
        name, _, level = text.partition("=")
        if not name or not level.isdecimal() or len(level) > 5 or int(level) > LEVEL_MAX:
            raise WrongUsage(f"--feature {text!r:.60} is not of the form NAME=LEVEL")
        found[name] = int(level)
    return found


def _update(options: argparse.Namespace, levels: Mapping[str, int], kind: int, done: str) -> int:
    if not levels:
        raise WrongUsage("say which feature: `moldau features describe` shows those that there are")
    with wire_cluster(options) as cluster:
        if not options.dry_run and kind != UPGRADE:
            confirm(options, f"Lower {', '.join(levels)} for the whole cluster?")
        _send(cluster, levels, kind, options.dry_run)
    verb = "can be" if options.dry_run else "was"
    lines = [f"{name} {verb} {done}{f' {level}' if done.endswith('to') else ''}." for name, level in levels.items()]
    rows = [{"feature": name, "level": level, "updated": not options.dry_run} for name, level in levels.items()]
    show(options, rows, lines)
    return 0


def _send(cluster: WireCluster, levels: Mapping[str, int], kind: int, is_tried: bool) -> None:
    connection = cluster.any()
    if not connection.serves(UpdateFeaturesRequest.api_key, UPDATE_FEATURES_HAS_UPGRADE_TYPES):
        raise ToolError(f"the broker at {connection.address} updates no features so: it needs Kafka 3.3 or newer")
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=is_tried)
    answer = connection.request(request, UpdateFeaturesResponse)
    for each in answer.results:
        check(f"feature {each.feature} cannot be updated", each.error_code, each.error_message)
    check("features are not updated", answer.error_code, answer.error_message)


COMMAND = Command(
    "features",
    "Describe the features of a cluster, and raise or lower their levels.",
    [
        Action("describe", "features and their levels", _describe, _describe_options, ["describe", "describe --json"]),
        Action(
            "upgrade",
            "raise levels",
            _upgrade,
            _upgrade_options,
            ["upgrade --feature transaction.version=2", "upgrade transaction.version=2 --dry-run"],
            noun="feature",
            tries=True,
        ),
        Action(
            "downgrade",
            "lower levels",
            _downgrade,
            _downgrade_options,
            ["downgrade --feature transaction.version=1", "downgrade transaction.version=1 --dry-run"],
            noun="feature",
            destroys=True,
            tries=True,
        ),
        Action(
            "disable",
            "take features back",
            _disable,
            _downgrade_options,
            ["disable --feature transaction.version --unsafe"],
            noun="feature",
            destroys=True,
            tries=True,
        ),
    ],
)
