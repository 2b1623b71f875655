"""What a hurried user does wrong: no traceback, one line, and the line says what to do."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest

from moldau import __main__
from moldau.cli import reachable
from moldau.cli.common import TRACEBACK_VARIABLE, run
from moldau.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, ToolError
from moldau.testing.brokers import BrokerInThread, broker
from moldau.testing.ports import free_ports
from tests.cli.conftest import Ended, Tool
from tests.serving import serving

Run = Callable[[list[str], bytes], Ended]
PERF = ("perf", "produce", "t", "--num-records", "1", "--record-size", "1")
NOT_UTF_8 = b"t\xff".decode(errors="surrogateescape")


# --- words that are mistyped ---


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topcs list", "did you mean topics?"),
        ("topics lst", "did you mean list?"),
        ("topics list --jso", "did you mean --json?"),
        ("topics create t --partition=3", "did you mean --partitions?"),
        ("consume t --from-begining", "did you mean --from-beginning?"),
        ("transactions descrbe", "did you mean describe?"),
        ("groups qqq", "there are list, describe"),
        ("qqq", "there are serve, topics"),
        ("groups list ' '", "unrecognized arguments"),
        ("topics --bootstrap-server host:9092", "say what to do: list, create"),
        ("topics --bootstrap-server host:9092 lst", "did you mean list?"),
        ("topics --list --zookeeper localhost:2181", "name some with --bootstrap-server"),
        ("topics --zookeeper localhost:2181 --topic t", "name some with --bootstrap-server"),
        ("consume --zookeeper=localhost:2181 --topic t --from-beginning", "name some with --bootstrap-server"),
        ("groups lag --zkconnect localhost:2181 --group g", "name some with --bootstrap-server"),
        ("offsets get --time newest", "nor one of latest, earliest, max-timestamp"),
    ],
)
def test_what_was_meant_is_guessed(capsys: pytest.CaptureFixture[str], line: str, meant: str) -> None:
    try:
        code = __main__.main(shlex.split(line))
    except SystemExit as ended:
        code = int(ended.code or 0)
    said = capsys.readouterr().err
    assert code == EXIT_USAGE
    assert meant in said
    assert said.count("\n") <= 2, "a page of usage hides what is wrong"


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
@pytest.mark.parametrize("number", ["100001", "99999999999", "9" * 5000])
def test_numbers_that_librdkafka_does_not_take_are_refused_by_their_option(
    capsys: pytest.CaptureFixture[str], option: str, number: str
) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["topics", "create", "t", option, number])
    assert f"argument {option}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("topics", "create", NOT_UTF_8), "is not text in UTF-8"),
        (("produce", NOT_UTF_8), "is not text in UTF-8"),
        (("consume", NOT_UTF_8), "is not text in UTF-8"),
        (("groups", "describe", NOT_UTF_8), "is not text in UTF-8"),
        (("transactions", "describe", "--transactional-id", NOT_UTF_8), "is not text in UTF-8"),
        (("configs", "alter", "topics", "t", "--add-config", f"a={NOT_UTF_8}"), "is not text in UTF-8"),
        (("consume", "t", "--group", NOT_UTF_8), "is not text in UTF-8"),
        (("consume", "t", "--group", ""), "name of the group is empty"),
        (("consume", "t", "--consumer-property", "group.id="), "name of the group is empty"),
        (("replay", "t", "--to", "again", "--group", " "), "name of the group is empty"),
        (("perf", "consume", "t", "--num-records", "1", "--group", " "), "name of the group is empty"),
        ((*PERF, "--transactional-id", " "), "transactional id is blank"),
        ((*PERF, "--transactional-id", NOT_UTF_8), "is not text in UTF-8"),
        (("topics", "list", "--command-property", f"client.id={NOT_UTF_8}"), "is not text in UTF-8"),
        (("produce", "t", "--header", f"{NOT_UTF_8}=x"), "is no text in UTF-8"),
        (("produce", "t", "--key-separator", ""), "key.separator is empty"),
        (("produce", "t", "--property", "parse.headers=true", "--property", "headers.separator="), "is empty"),
    ],
)
def test_bytes_and_separators_that_cannot_be_are_one_line(tool: Tool, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in tool.error(*arguments, stdin=b"a\n")


@pytest.mark.parametrize("option", ["--bootstrap-server", "--cluster"])
def test_an_empty_variable_of_a_script_does_not_name_the_default_cluster(run_tool: Run, option: str) -> None:
    assert f"{option} is empty" in run_tool(["topics", "delete", "visits", option, ""], b"").errors


# --- names that are mistyped ---


@pytest.fixture
def visits(tool: Tool, topic: str) -> str:
    """A topic with two records."""
    tool.ok("topics", "create", topic, "--config", "retention.ms=864000000")
    tool.ok("produce", topic, stdin=b"one\ntwo\n")
    return topic


@pytest.mark.parametrize(
    "line",
    [
        "consume {}",
        "records delete {} --before-offset 1",
        "replay {} --to x",
        "topics describe {}",
        "topics delete {}",
        "groups reset g --to-latest --topic {}",
        "configs describe topics {}",
    ],
)
def test_a_topic_that_was_meant_is_guessed(tool: Tool, visits: str, line: str) -> None:
    said = tool.error(*line.format(f"{visits}s").split())
    assert f"'{visits}s' does not exist: did you mean {visits}?" in said


@pytest.mark.parametrize(
    "line", ["configs alter topics {} --delete-config retention.mss", "topics alter {} --delete-config retention.mss"]
)
def test_a_setting_that_there_is_not_cannot_be_given_its_default(tool: Tool, visits: str, line: str) -> None:
    """Brokers take it, so the setting that was meant stayed, and the command said that it was done."""
    assert "did you mean retention.ms?" in tool.error(*line.format(visits).split())
    assert "retention.ms=864000000" in tool.ok("configs", "describe", "topics", visits)
    tool.ok(*line.format(visits).replace("mss", "ms").split())
    assert "retention.ms" not in tool.ok("configs", "describe", "topics", visits)


def test_a_group_that_there_is_not_has_no_good_offsets(tool: Tool, topic: str) -> None:
    assert f"there is no group '{topic}'" in tool.error("offsets", "verify", topic)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("consume {} --no-follow --property print.kye=true", "print.key"),
        ("produce {} --property prase.key=true", "parse.key"),
        ("consume {} --no-follow --property com.acme.color=red", None),
    ],
)
def test_a_property_that_was_meant_is_guessed(tool: Tool, visits: str, line: str, meant: str | None) -> None:
    ended = tool(*line.format(visits).split(), stdin=b"")
    assert ended.code == 0
    assert (f"did you mean {meant}?" in ended.errors) if meant else ("warning" not in ended.errors)


def test_a_record_that_the_broker_finds_too_large_is_told_with_a_way_out(tool: Tool, visits: str) -> None:
    large = ("produce", visits, "--producer-property", "max.request.size=5000000")
    ended = tool(*large, stdin=b"x" * 2_000_000)
    assert ended.code == 1
    assert f"`moldau topics alter {visits} --config max.message.bytes=N`" in ended.errors


# --- places that are not there ---


@pytest.mark.parametrize("end", ["--no-follow", "--until-offset=200"])
def test_an_offset_past_the_end_is_an_error_also_where_the_reading_has_an_end(
    tool: Tool, visits: str, end: str
) -> None:
    assert "has no such offset" in tool.error("consume", visits, "--partition", "0", "--offset", "99", end)[-70:]
    assert tool.ok("consume", visits, "--partition", "0", "--offset", "2", "--no-follow") == ""


def test_a_group_does_not_read_one_partition_and_says_so(run_tool: Run) -> None:
    """It read as if there were no group, and committed nothing."""
    with pytest.raises(SystemExit) as ended:
        run_tool(["consume", "t", "--group", "g", "--partition", "0"], b"")
    assert ended.value.code == EXIT_USAGE


def test_the_group_of_a_file_of_properties_knows_what_was_read_of_one_partition(tool: Tool, visits: str) -> None:
    """As with Kafka's console consumer, whose own consumer.properties names a group."""
    group = ("--consumer-property", f"group.id={visits}")
    place = ("consume", visits, "--partition", "0")
    assert tool.ok(*place, "--from-beginning", "--no-follow", *group) == "one\ntwo\n"
    assert f"{visits}  0          2" in tool.ok("groups", "describe", visits)


# --- what the command line alone shows, and what a cluster or a file does ---


@pytest.mark.parametrize(
    "line",
    [
        "topics alter t",
        "topics create t --config x",
        "topics create t --replica-assignment 1:x",
        "topics list --command-property x",
        "records delete t",
        "groups describe",
        "groups describe g --all-groups",
        "groups reset g --to-latest",
        "groups list --state nope",
        "offsets get t --partitions x",
        "offsets export g --json --format csv",
        "configs describe",
        "configs describe tables",
        "configs alter topics t",
        "configs alter topics t --add-config a=1 --delete-config a",
        "features upgrade",
        "features upgrade f",
        "reassign plan --brokers 1",
        "reassign plan t",
        "transactions find-hanging --partition 0",
        "transactions abort --topic t --partition 0",
        "produce t --format avro",
        "consume t --format avro",
        "consume t --group g --consumer-property group.id=h",
        "perf consume --num-records 1",
        "state-changes merge",
    ],
)
def test_wrong_usage_ends_with_two_whoever_finds_it(moldau_broker: BrokerInThread, run_tool: Run, line: str) -> None:
    place = [] if line.startswith("state-changes") else ["--bootstrap-server", moldau_broker.bootstrap]
    ended = run_tool([*line.split(), *place], b"")
    assert (ended.code, ended.errors.count("\n")) == (EXIT_USAGE, 1)


@pytest.mark.parametrize(
    "line",
    [
        "topics describe t",
        "consume t",
        "groups describe g",
        "offsets verify g",
        "configs describe topics t",
        "features upgrade nope=1",
        "records delete --offset-json-file /no/such",
        "reassign execute --plan /no/such",
        "transactions describe nobody",
        "log verify /no/such",
    ],
)
def test_what_is_not_there_ends_with_one(moldau_broker: BrokerInThread, run_tool: Run, line: str) -> None:
    place = [] if line.startswith("log") else ["--bootstrap-server", moldau_broker.bootstrap]
    ended = run_tool([*line.split(), *place], b"")
    assert (ended.code, ended.errors.count("\n")) == (EXIT_FAILED, 1)


# --- addresses behind which there is no broker, or another kind of listener ---


@contextmanager
def answering(data: bytes | None) -> Iterator[str]:
    """Something that takes connections, and answers with `data` and hangs up; None: says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                if data is None:
                    kept.append(connection)
                else:
                    with connection:
                        if connection.recv(1024):
                            connection.sendall(data)

        serving_thread = threading.Thread(target=serve)
        serving_thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    serving_thread.join()
    for each in kept:
        each.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "takes connections and says nothing"),
        (b"", "may want TLS or SASL"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "its listener wants TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Kafka's protocol"),
        (b"\0\0\0\x08\0\0\0\x13\0\0\0\x05", "cannot be read"),
    ],
)
@pytest.mark.parametrize("command", ["topics list", "produce t", "consume t"])
def test_what_is_no_broker_is_told_at_once(
    run_tool: Run, monkeypatch: pytest.MonkeyPatch, command: str, data: bytes | None, reason: str
) -> None:
    monkeypatch.setattr(reachable, "FIRST_ANSWER_TIMEOUT_S", 0.2)
    with answering(data) as address:
        ended = run_tool([*command.split(), "--bootstrap-server", address], b"")
    assert (ended.code, ended.errors.count("\n")) == (EXIT_FAILED, 1)
    assert reason in ended.errors


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ("security.protocol=SSL", "does its listener speak TLS?"),
        (
            "security.protocol=SASL_PLAINTEXT sasl.mechanism=PLAIN sasl.username=a sasl.password=b",
            "takes no name and password",
        ),
    ],
)
@pytest.mark.parametrize("command", ["topics", "brokers"])
def test_security_that_a_plain_listener_has_not_is_told_at_once(
    tool: Tool, command: str, properties: str, reason: str
) -> None:
    named = [word for each in properties.split() for word in ("--command-property", each)]
    assert reason in tool.error(command, "list", *named)


def test_a_broker_that_sends_clients_to_another_address_is_told_so(run_tool: Run) -> None:
    (port, nobodys) = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{nobodys}",
    }
    with broker(settings):
        ended = run_tool(["topics", "create", "visits", "--bootstrap-server", f"127.0.0.1:{port}"], b"")
    assert ended.code == EXIT_FAILED
    assert f"sends clients to 127.0.0.1:{nobodys} (Connection refused)" in ended.errors
    assert "advertised.listeners" in ended.errors


@pytest.mark.parametrize("address", ["host:", "host:abc", "host:0", "host:65536", ":9092", ","])
def test_what_is_no_address_is_refused(run_tool: Run, address: str) -> None:
    assert "is not of the form HOST:PORT" in run_tool(["topics", "list", "--bootstrap-server", address], b"").errors


# --- properties ---


def test_bootstrap_servers_in_a_file_of_properties_name_the_cluster(
    moldau_broker: BrokerInThread, run_tool: Run, tmp_path: Path
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"bootstrap.servers={moldau_broker.bootstrap}\n")
    for line in (
        ["topics", "list"],
        ["groups", "list"],
        ["perf", "produce", "t", "--num-records=1", "--record-size=1"],
    ):
        assert run_tool([*line, "--command-config", str(settings)], b"").code == 0, line
    (nobodys,) = free_ports(1)
    settings.write_text(f"bootstrap.servers=127.0.0.1:{nobodys}\n")
    there = ["--bootstrap-server", moldau_broker.bootstrap]
    assert run_tool(["topics", "list", "--command-config", str(settings), *there], b"").code == 0, (
        "an option goes first"
    )


# --- streams that are closed, full or cut; Ctrl-C ---


def shell(line: str, bootstrap: str) -> "subprocess.CompletedProcess[str]":
    """A line of bash in which `moldau` is the command of this checkout."""
    environment = {**os.environ, "PYTHON": sys.executable, "MOLDAU_BOOTSTRAP_SERVER": bootstrap}
    script = f'moldau() {{ "$PYTHON" -m moldau "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.foreign  # a shell
@pytest.mark.parametrize(
    ("line", "code", "errors"),
    [
        ("moldau topics list >&-", 0, ""),
        ("moldau topics list 2>&-", 0, ""),
        ("moldau produce t <&-", 0, ""),
        ("moldau --help >&-", 0, ""),
        ("moldau --help > /dev/full", 1, "error: cannot write: No space left on device\n"),
        ("moldau topics create --help > /dev/full", 1, "error: cannot write: No space left on device\n"),
        ("moldau topics list > /dev/full; moldau groups --help > /dev/full", 1, "cannot write"),
        ("moldau consume --help | head -c 1; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full_end_no_command_with_a_traceback(
    moldau_broker: BrokerInThread, line: str, code: int, errors: str
) -> None:
    ended = shell(f"moldau produce t < /dev/null; {line}", moldau_broker.bootstrap)
    assert ended.returncode == code, ended.stderr
    assert errors in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_ctrl_c_while_a_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> ModuleType:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_imported_unsearched", interrupted)
    monkeypatch.setattr(sys, "argv", ["moldau", "topics"])
    assert __main__.main() == EXIT_INTERRUPTED


def test_ctrl_c_inside_of_librdkafka_is_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    """What is raised in a callback may come out as something else."""

    def work() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemError("flush returned NULL without setting an exception") from None
        return 0

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run(work) == EXIT_INTERRUPTED
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""


IN_VAIN = """
import sys
from confluent_kafka.admin import AdminClient
from moldau.cli.common import run
print("begun", flush=True)
sys.exit(run(lambda: AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0}).list_topics(timeout=300)))
"""


def test_a_second_ctrl_c_ends_a_command_that_librdkafka_does_not_come_back_to() -> None:
    with answering(None) as address:
        stuck = subprocess.Popen(
            [sys.executable, "-c", IN_VAIN, address], stdout=subprocess.PIPE, preexec_fn=heed_ctrl_c
        )
        assert stuck.stdout is not None
        stuck.stdout.readline()
        begun_s = time.monotonic()
        while stuck.poll() is None:
            stuck.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                stuck.wait(0.2)
            assert time.monotonic() - begun_s < 60
        stuck.communicate()
    assert stuck.returncode in (EXIT_INTERRUPTED, -signal.SIGINT)


def heed_ctrl_c() -> None:
    """Let SIGINT reach the process: a shell's job in the background, such as these tests may be, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_defect_of_ours_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> int:
        raise LookupError("lost")

    with pytest.raises(LookupError):
        run(work)
    monkeypatch.delenv(TRACEBACK_VARIABLE)
    assert run(work) == EXIT_FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "LookupError: lost" in said
    assert TRACEBACK_VARIABLE in said


def test_a_reason_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise ToolError("two\nlines, and \033[2J")

    assert run(work) == EXIT_FAILED
    assert capsys.readouterr().err == "error: two lines, and \N{REPLACEMENT CHARACTER}[2J\n"


def test_who_follows_a_topic_is_told_that_its_broker_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as here:
        place = ["--bootstrap-server", here.bootstrap]
        assert __main__.main(["topics", "create", "visits", *place]) == 0
        program = [sys.executable, "-m", "moldau", "consume", "visits", "--from-beginning", *place]
        follower = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert __main__.main(["perf", "produce", "visits", "--num-records=1", "--record-size=1", *place]) == 0
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert len(follower.stdout.readline()) == 2
        here.kill()
        assert follower.stderr.readline() == "warning: no broker answers; trying again\n"
        follower.kill()
        follower.communicate()
