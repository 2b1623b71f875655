"""Lines of Kafka's tutorials work with the script's name replaced: every option of Kafka 4.3.1's tools is known, and
lines as its documentation prints them are understood by the real parsers."""

from importlib import import_module
from pathlib import Path

import pytest

from moldau.__main__ import COMMANDS
from moldau.cli.command_page import command_of, parsers_of
from tests.docs.command_lines import calls, problem

SCRIPTS = Path(__file__).parents[2] / "docs" / "tools.md"

OPTIONS = {
    "topics": """--alter --at-min-isr-partitions --bootstrap-server --command-config --config --create --delete
        --delete-config --describe --exclude-internal --help --if-exists --if-not-exists --list
        --partition-size-limit-per-response --partitions --replica-assignment --replication-factor --topic --topic-id
        --topics-with-overrides --unavailable-partitions --under-min-isr-partitions --under-replicated-partitions
        --version""",
    "produce": """--batch-size --bootstrap-server --command-config --command-property --compression-codec --help
        --line-reader --max-block-ms --max-memory-bytes --max-partition-memory-bytes --message-send-max-retries
        --metadata-expiry-ms --producer-property --producer.config --property --reader-config --reader-property
        --request-required-acks --request-timeout-ms --retry-backoff-ms --socket-buffer-size --sync --timeout --topic
        --version""",
    "consume": """--bootstrap-server --command-config --command-property --consumer-property --consumer.config
        --formatter --formatter-config --formatter-property --from-beginning --group --help --include
        --isolation-level --key-deserializer --max-messages --offset --partition --property --skip-message-on-error
        --timeout-ms --topic --value-deserializer --version""",
    "groups": """--all-groups --all-topics --bootstrap-server --by-duration --command-config --consumer --delete
        --delete-offsets --describe --dry-run --execute --export --from-file --group --group-type --help --list
        --members --offsets --protocol --reset-offsets --share --shift-by --state --streams --timeout --to-current
        --to-datetime --to-earliest --to-latest --to-offset --topic --type --verbose --version""",
    "perf consume": """--bootstrap-server --command-config --command-property --consumer.config --date-format
        --fetch-size --from-latest --group --help --hide-header --include --messages --num-records --print-metrics
        --reporting-interval --show-detailed-stats --socket-buffer-size --timeout --topic --version""",
    "perf produce": """--bootstrap-server --command-config --command-property --help --num-records --payload-delimiter
        --payload-file --payload-monotonic --print-metrics --producer-props --producer.config --record-size
        --reporting-interval --throughput --topic --transaction-duration-ms --transactional-id --warmup-records""",
    "offsets get": """--bootstrap-server --command-config --exclude-internal-topics --help --partitions --time --topic
        --topic-partitions --version""",
    "elect": """--admin.config --all-topic-partitions --bootstrap-server --command-config --election-type --help
        --partition --path-to-json-file --topic --version""",
    "reassign": """--additional --bootstrap-controller --bootstrap-server --broker-list --cancel --command-config
        --disable-rack-aware --disallow-replication-factor-change --execute --generate --help --list
        --preserve-throttles --reassignment-json-file --replica-alter-log-dirs-throttle --throttle --timeout
        --topics-to-move-json-file --verify --version""",
    "records delete": "--bootstrap-server --command-config --help --offset-json-file --version",
    "log dump": """--cluster-metadata-decoder --deep-iteration --files --help --index-sanity-check
        --key-decoder-class --max-bytes --max-message-size --offsets-decoder --print-data-log
        --remote-log-metadata-decoder --share-group-state-decoder --skip-record-metadata --transaction-log-decoder
        --value-decoder-class --verify-index-only --version""",
    "brokers describe": "--bootstrap-server --command-config --help --version",
    "brokers log-dirs": "--bootstrap-server --broker-list --command-config --describe --help --topic-list --version",
    "features": "--bootstrap-controller --bootstrap-server --command-config --feature --help",
    "transactions": """--bootstrap-server --command-config --help --version --transactional-id --topic --partition
        --broker-id --max-transaction-timeout --start-offset --producer-id --producer-epoch --coordinator-epoch
        --duration-filter --transactional-id-pattern --state""",
    "configs": """--add-config --add-config-file --all --alter --bootstrap-controller --bootstrap-server --broker
        --broker-defaults --broker-logger --client --client-defaults --client-metrics --command-config
        --delete-config --describe --entity-default --entity-name --entity-type --group --help --ip --ip-defaults
        --topic --user --user-defaults --version""",
}
"""Options that the tools of Kafka 4.3.1 name in their own `--help`. Not here: `--enable-systest-events` of the consumer
and `--validate-regex` of the groups, which are for Kafka's own tests and for its regular expressions."""

LINES = Path(__file__).with_name("kafka_lines.txt").read_text().splitlines()
"""Lines of Kafka's documentation, with the script's name replaced."""


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_of_kafkas_tool_is_known(command: str) -> None:
    name, _, action = command.partition(" ")
    module = import_module(COMMANDS[name][0])
    parsers = [parser for words, parser in parsers_of(module) if not action or words == command]
    known = {option for parser in parsers for option in parser._option_string_actions}
    found = command_of(module)
    if found is not None:
        known |= {flag for each in found.actions for flag in each.flags}
    assert set(OPTIONS[command].split()) - known == set()


@pytest.mark.parametrize("option", ["--timeout", "--command-config", "--bootstrap-server"])
def test_what_every_line_for_groups_may_have_every_action_knows(option: str) -> None:
    """A union over all actions hides that one of them does not."""
    kafkas = ("list", "describe", "delete", "reset", "delete-offsets")
    for words, parser in parsers_of(import_module(COMMANDS["groups"][0])):
        assert words.split()[1] not in kafkas or option in parser._option_string_actions, words


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_kafkas_documentation_is_understood(line: str) -> None:
    [call] = calls(line)
    assert problem(call) is None


NAMES = """connect-distributed connect-mirror-maker connect-plugin-path connect-standalone kafka-acls
    kafka-broker-api-versions kafka-client-metrics kafka-cluster kafka-configs kafka-console-consumer
    kafka-console-producer kafka-console-share-consumer kafka-consumer-groups kafka-consumer-perf-test
    kafka-delegation-tokens kafka-delete-records kafka-dump-log kafka-e2e-latency kafka-features kafka-get-offsets
    kafka-groups kafka-jmx kafka-leader-election kafka-log-dirs kafka-metadata-quorum kafka-metadata-shell
    kafka-producer-perf-test kafka-reassign-partitions kafka-replica-verification kafka-server-start kafka-server-stop
    kafka-share-groups kafka-storage kafka-streams-application-reset kafka-streams-groups kafka-topics
    kafka-transactions kafka-verifiable-consumer kafka-verifiable-producer"""
"""Scripts of Kafka 4.3.1 for people."""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_page_says_what_to_use_for_every_script_of_kafka(name: str) -> None:
    assert f"`{name}.sh`" in SCRIPTS.read_text()
