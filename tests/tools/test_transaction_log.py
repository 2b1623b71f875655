"""Kafka's DumpLogSegments reads the topic of our transactions."""

import re
from pathlib import Path

from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.records.batch import Record, build_batch
from moldau.records.validate import prepare_own_batch
from tests.coordinators.transactions_driver import A, B, Driver
from tests.log.helpers import NOW_MS, append
from tests.tools.java_tools import JavaTools

DAY_MS = 86_400_000


def transaction_log(directory: Path, driver: Driver) -> Path:
    """A log with what the coordinator has written; its segment."""
    partition = TopicPartition("__transaction_state", 0)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), str(directory / str(partition)), partition, TopicConfig())
    for key, value in driver.log:
        append(log, prepare_own_batch(build_batch([Record(0, NOW_MS, key, value)])))
    log.close()
    return directory / str(partition) / f"{0:020d}.log"


def test_kafkas_decoder_prints_every_state_and_tombstone(kafka_classpath: str, tmp_path: Path) -> None:
    driver = Driver()
    producer = driver.init()
    producer = driver.jump_to(32766)
    driver.add(producer, A, B)
    after = driver.end(producer)
    driver.written()
    driver.add(after, A)
    driver.end(after, committed=False)
    driver.written()
    driver.transaction_version = 0
    driver.init(name="plain")
    driver.pass_time(8 * DAY_MS)
    driver.clean_up()
    said = JavaTools(kafka_classpath).dump([transaction_log(tmp_path, driver)], "--transaction-log-decoder")
    statuses = [int(each) for each in re.findall(r'"transactionStatus":(\d)', said)]
    assert statuses == [0, 0, 1, 2, 4, 1, 3, 5, 0]
    assert said.count("payload: <DELETE>") == 2
    assert re.findall(r'payload: {"version":"(\d)"', said) == ["1"] * 8 + ["0"]
    assert '"transactionPartitions":[{"topic":"t","partitionIds":[0,1]}]' in said
    for expected in ('"nextProducerId":4001', '"previousProducerId":4000', '"producerEpoch":32767'):
        assert expected in said
    assert said.count('"transactionalId":"plain"') == 2
    assert "isvalid: false" not in said
