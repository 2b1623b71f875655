"""AddPartitionsToTxn 4+: the question of brokers for many transactions at once, over a socket or within one broker."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from moldau.cluster.image import ClusterImage
from moldau.coordinators.promise import Promise, all_of, mapped
from moldau.coordinators.transactions.transaction import EPOCH_BUMPS, Producer
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.requests.groups_access import awaited
from moldau.requests.transactions_access import TransactionsAccess
from moldau.requests.turns import Turns

Codes = dict[TopicPartition, ErrorCode]

LONG_REQUEST_PARTITIONS = 200
"""Number of partitions up to which a request is handled at once; with more it is handled in turns with others. Only
partitions that exist are added to a transaction."""


def add_partitions(
    transactions: TransactionsAccess, image: ClusterImage, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
    """The answer to a broker that may ask: for each transaction what became of its partitions."""
    asked = request.transactions
    results = all_of([_of_one(transactions, image, each) for each in asked])
    return mapped(results, lambda found: _response(asked, found))


def _of_one(
    transactions: TransactionsAccess, image: ClusterImage, asked: AddPartitionsToTxnTransaction
) -> Codes | Promise[Codes]:
    partitions = named(asked.topics)
    missing = {each: code for each in partitions if (code := refusal(image, each)) is not None}
    if missing:
        return all_or_nothing(partitions, missing)
    producer = Producer(asked.producer_id, asked.producer_epoch)
    return added(
        transactions, asked.transactional_id, producer, partitions, EPOCH_BUMPS, is_verifying=asked.verify_only
    )


def added(
    transactions: TransactionsAccess,
    transactional_id: str,
    producer: Producer,
    partitions: Sequence[TopicPartition],
    client_version: int,
    *,
    is_verifying: bool = False,
) -> Codes | Promise[Codes]:
    """The code of each partition once it is part of the transaction, or found to be."""
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    refused = partial(_refused, partitions)
    wanted = frozenset(partitions)
    if is_verifying:
        return transactions.answer(
            transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, wanted), refused
        )

    def codes(value: Codes | Producer) -> Codes:
        return value if isinstance(value, dict) else dict.fromkeys(partitions, ErrorCode.NONE)

    answer: Codes | Producer | Promise[Codes | Producer] = transactions.answer(
        transactional_id,
        lambda shard: shard.add_partitions(transactional_id, producer, wanted, client_version),
        refused,
    )
    return answer.mapped(codes) if isinstance(answer, Promise) else codes(answer)


def is_long(topics: Iterable[AddPartitionsToTxnTopic]) -> bool:
    """Whether so many partitions are named that they are looked through in turns."""
    return sum(1 + len(topic.partitions) for topic in topics) > LONG_REQUEST_PARTITIONS


async def add_partitions_in_turns(
    transactions: TransactionsAccess, image: ClusterImage, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Answer like `add_partitions`, for transactions with very many partitions."""
    turns = Turns()
    results = []
    for asked in request.transactions:
        partitions, failed = await looked_through(asked.topics, lambda each: refusal(image, each), turns)
        if failed:
            topics = await by_topic_in_turns(partitions, failed, turns)
        else:
            producer = Producer(asked.producer_id, asked.producer_epoch)
            is_verifying = asked.verify_only
            codes = added(
                transactions, asked.transactional_id, producer, partitions, EPOCH_BUMPS, is_verifying=is_verifying
            )
            topics = by_topic(await awaited(codes))
        results.append(AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def looked_through(
    topics: Iterable[AddPartitionsToTxnTopic], refused: Callable[[TopicPartition], ErrorCode | None], turns: Turns
) -> tuple[list[TopicPartition], Codes]:
    """The partitions that a request names, each once, and those that cannot be added."""
    found: dict[TopicPartition, None] = {}
    failed = Codes()
    async for topic in turns.each(topics):
        async for number in turns.each(topic.partitions):
            each = TopicPartition(topic.name, number)
            if each not in found:
                found[each] = None
                code = refused(each)
                if code is not None:
                    failed[each] = code
    return list(found), failed


async def by_topic_in_turns(
    partitions: Iterable[TopicPartition], failed: Codes, turns: Turns
) -> list[AddPartitionsToTxnTopicResult]:
    """The answer where some partitions cannot be added."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    async for each in turns.each(partitions):
        code = failed.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)
        result = AddPartitionsToTxnPartitionResult(partition_index=each.partition, partition_error_code=code)
        topics.setdefault(each.topic, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=found)
        async for name, found in turns.each(topics.items())
    ]


def refusal(image: ClusterImage, partition: TopicPartition) -> ErrorCode | None:
    """Error because of which a partition cannot be in a transaction, or None."""
    topic = image.topics.get(partition.topic)
    is_there = topic is not None and 0 <= partition.partition < len(topic.partitions)
    return None if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def all_or_nothing(partitions: Iterable[TopicPartition], failed: Codes) -> Codes:
    """The codes where some partitions cannot be added: then none is."""
    return {each: failed.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}


def named(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """The partitions that a request names, each once."""
    return list(dict.fromkeys(TopicPartition(topic.name, each) for topic in topics for each in topic.partitions))


def by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    """The codes as an answer has them."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, number), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=found) for name, found in topics.items()]


def _refused(partitions: Sequence[TopicPartition], error: ApiError) -> Codes:
    return dict.fromkeys(partitions, error.code)


def _response(asked: Sequence[AddPartitionsToTxnTransaction], found: Sequence[Codes]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=by_topic(codes))
            for each, codes in zip(asked, found, strict=True)
        ]
    )
