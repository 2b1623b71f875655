"""How a broker asks the coordinators of transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import uvloop

from moldau.broker.transaction_verifier import CoordinatorVerifier
from moldau.cluster.image import NO_LEADER, BrokerInfo, Endpoint
from moldau.coordinators.promise import Promise
from moldau.core.broker_config import BrokerConfig
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.requests.parts import Parts
from moldau.requests.transaction_verification import TransactionOperation, VerifiedTransaction
from tests.broker.fake_leader import FakeLeader

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERIFY_OLD, VERIFY, ADD = TransactionOperation
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def transaction(name: str = "tx", epoch: int = 0) -> VerifiedTransaction:
    return VerifiedTransaction(name, 7, epoch)


class Cluster:
    """One other broker, which coordinates everything until it is told otherwise."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop) -> None:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
        config, _ = BrokerConfig.parse({})
        self.partition = SimpleNamespace(leader=2)
        self.topics = {"__transaction_state": SimpleNamespace(partitions=[self.partition])}
        image = SimpleNamespace(topics=self.topics, brokers={n: BrokerInfo(n, None, (endpoint,)) for n in (1, 2)})
        self.parts = SimpleNamespace(broker_id=1, config=config, metadata=SimpleNamespace(image=image))
        self.verifier = CoordinatorVerifier(loop, cast(Parts, self.parts))

    def try_for(self, longest_ms: int) -> None:
        self.parts.config, _ = BrokerConfig.parse({"add.partitions.to.txn.retry.backoff.max.ms": str(longest_ms)})


def answer(request: AddPartitionsToTxnRequest, code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def story(tell: Callable[[Cluster, FakeLeader], Awaitable[None]]) -> None:
    async def run() -> None:
        peer = FakeLeader()
        cluster = Cluster(await peer.start(), asyncio.get_running_loop())
        try:
            await tell(cluster, peer)
        finally:
            cluster.verifier.close()
            await peer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_one_request_is_under_way_and_the_next_has_all_that_came_meanwhile() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        verify = cluster.verifier.verify
        first = asyncio.ensure_future(verify(transaction("a"), [P0, P1], VERIFY))
        asked = await peer.asked()
        request = asked.message
        (only,) = request.transactions
        assert (only.transactional_id, only.producer_id, only.producer_epoch, only.verify_only) == ("a", 7, 0, True)
        assert [(topic.name, topic.partitions) for topic in only.topics] == [("t", [0, 1])]
        later = [
            asyncio.ensure_future(verify(transaction(name), [partition], ADD))
            for name, partition in (("b", P0), ("c", P0), ("b", P1))
        ]
        await asyncio.sleep(0)
        asked.answer(answer(request))
        assert await first == {P0: 0, P1: 0}
        asked = await peer.asked()
        request = asked.message
        found = [(each.transactional_id, each.verify_only, each.topics[0].partitions) for each in request.transactions]
        assert found == [("b", False, [0, 1]), ("c", False, [0])]
        asked.answer(answer(request))
        assert [await each for each in later] == [{P0: 0}, {P0: 0}, {P1: 0}]
        assert peer.connections == 1

    story(tell)


def test_of_one_transactional_id_the_newest_epoch_waits() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        verify = cluster.verifier.verify
        held = asyncio.ensure_future(verify(transaction("other"), [P0], VERIFY))
        blocking = await peer.asked()
        epochs = [asyncio.ensure_future(verify(transaction(epoch=each), [P0], VERIFY)) for each in (3, 4, 2)]
        await asyncio.sleep(0)
        blocking.answer(answer(blocking.message))
        assert await held == {P0: 0}
        asked = await peer.asked()
        request = asked.message
        assert [each.producer_epoch for each in request.transactions] == [4]
        asked.answer(answer(request))
        assert [await each for each in epochs] == [{P0: FENCED}, {P0: 0}, {P0: FENCED}]

    story(tell)


def test_a_new_producer_id_is_not_fenced_by_a_late_request_of_the_one_before() -> None:
    """After the last epoch of an id comes epoch 0 of another: a lower number, and newer."""

    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        verify = cluster.verifier.verify
        held = asyncio.ensure_future(verify(transaction("other"), [P0], VERIFY))
        blocking = await peer.asked()
        late = asyncio.ensure_future(verify(transaction(epoch=32766), [P0], VERIFY))
        await asyncio.sleep(0)
        new = asyncio.ensure_future(verify(transaction()._replace(producer_id=8), [P0], VERIFY))
        await asyncio.sleep(0)
        blocking.answer(answer(blocking.message))
        assert await held == {P0: 0}
        asked = await peer.asked()
        assert [each.producer_id for each in asked.message.transactions] == [8]
        asked.answer(answer(asked.message))
        assert await new == {P0: 0}
        assert await late == {P0: ErrorCode.NETWORK_EXCEPTION}

    story(tell)


def test_codes_are_told_as_the_client_knows_them() -> None:
    cases = [
        (ErrorCode.PRODUCER_FENCED, VERIFY_OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFY_OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFY, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, VERIFY, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ADD, ErrorCode.NOT_COORDINATOR),
    ]

    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        for code, operation, told in cases:
            waiting = asyncio.ensure_future(cluster.verifier.verify(transaction(), [P0], operation))
            asked = await peer.asked()
            asked.answer(answer(asked.message, code))
            assert await waiting == {P0: told}

    story(tell)


def test_right_after_a_commit_it_is_tried_again_and_not_for_ever() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        cluster.try_for(60_000)
        waiting = asyncio.ensure_future(cluster.verifier.verify(transaction(), [P0], ADD))
        for code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE):
            asked = await peer.asked()
            asked.answer(answer(asked.message, code))
        assert await waiting == {P0: 0}

        class AlwaysBusy:
            times = 0

            def add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
                self.times += 1
                return answer(request, ErrorCode.CONCURRENT_TRANSACTIONS)

        cluster.try_for(100)
        cluster.partition.leader = 1
        cluster.verifier.local = busy = AlwaysBusy()
        codes = await cluster.verifier.verify(transaction(), [P0], ADD)
        assert codes == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert 1 <= busy.times <= 6, "100 ms in steps of 20"

    story(tell)


def test_nobody_to_ask_and_nobody_who_answers_are_told_apart() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        verify = cluster.verifier.verify
        waiting = asyncio.ensure_future(verify(transaction(), [P0], VERIFY))
        await peer.asked()
        await peer.stop()
        assert await waiting == {P0: ErrorCode.NETWORK_EXCEPTION}
        assert await verify(transaction(), [P0], VERIFY) == {P0: ErrorCode.NETWORK_EXCEPTION}
        cluster.partition.leader = NO_LEADER
        assert await verify(transaction(), [P0], VERIFY) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        cluster.topics.clear()
        assert await verify(transaction(), [P0], VERIFY) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    story(tell)


def test_the_own_coordinator_is_asked_without_a_socket() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        later: Promise[AddPartitionsToTxnResponse] = Promise()
        requests: list[AddPartitionsToTxnRequest] = []

        class Own:
            def add_partitions(self, request: AddPartitionsToTxnRequest) -> Promise[AddPartitionsToTxnResponse]:
                requests.append(request)
                asyncio.get_running_loop().call_soon(lambda: later.complete(answer(request)))
                return later

        cluster.partition.leader = 1
        cluster.verifier.local = Own()
        assert await cluster.verifier.verify(transaction(), [P0], ADD) == {P0: 0}
        assert (len(requests), peer.connections) == (1, 0)

    story(tell)
