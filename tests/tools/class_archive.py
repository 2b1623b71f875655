"""`python -m tests.tools.class_archive`: the classes of Kafka's tools, read once for all the JVMs of the tests.

A tool lives for a second, and spends most of it loading classes. The JVM's own class data sharing halves that: each
tool is still its main class in a JVM of its own. A JVM that does not find the archive, or finds it made of other jars,
goes on without it.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from moldau.testing import broker
from tests.clients.java_client import ARCHIVE, JARS, NEWEST, QUICK

CLASSPATH = f"{JARS[NEWEST]}/*"
TOPIC = "t"


def _works(bootstrap: str) -> list[tuple[str, ...]]:
    """Tools that load what the others load too."""
    server = ("--bootstrap-server", bootstrap)
    tools = "org.apache.kafka.tools"
    load = ("--num-records", "3", "--record-size", "9", "--throughput", "-1")
    producing = ("--topic", TOPIC, *load, "--producer-props", f"bootstrap.servers={bootstrap}")
    reading = (*server, "--topic", TOPIC, "--max-messages", "1")
    return [
        (f"{tools}.TopicCommand", *server, "--create", "--topic", TOPIC, "--config", "retention.ms=-1"),
        (f"{tools}.TopicCommand", *server, "--describe"),
        ("kafka.admin.ConfigCommand", *server, "--describe", "--topic", TOPIC, "--all"),
        (f"{tools}.ProducerPerformance", *producing),
        (f"{tools}.consumer.ConsoleConsumer", *reading, "--from-beginning", "--group", "classic"),
        (f"{tools}.VerifiableConsumer", *reading, "--group-id", "new", "--group-protocol", "consumer"),
        (f"{tools}.consumer.group.ConsumerGroupCommand", *server, "--describe", "--all-groups"),
    ]


def _run(options: Sequence[str], command: Iterable[str] = ()) -> None:
    subprocess.run(["java", *QUICK, *options, "-cp", CLASSPATH, *command], check=True, capture_output=True, timeout=300)


def main() -> None:
    with tempfile.TemporaryDirectory() as made, broker() as running:
        lists: list[Path] = []
        for work in _works(running.bootstrap):
            lists.append(Path(made) / str(len(lists)))
            _run([f"-XX:DumpLoadedClassList={lists[-1]}"], work)
        classes = Path(made) / "classes"
        classes.write_text("".join(sorted({line for each in lists for line in each.open()})))
        _run(["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={ARCHIVE}"])


if __name__ == "__main__":
    main()
