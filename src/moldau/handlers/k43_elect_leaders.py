"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460).

Makes the preferred replicas lead, or (1+, election type 1) gives partitions without a leader one that may lack
records. Any broker serves it; an answer means that the election is in the metadata store.

- No topics at all stands for every partition; the answer then leaves out those where there was nothing to do.
- A leader that is the preferred one, or alive for type 1: ELECTION_NOT_NEEDED. A preferred replica that is not in
  sync or not alive: PREFERRED_LEADER_NOT_AVAILABLE. Nobody alive at all: ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from moldau.cluster.changes import CHANGES_PER_MULTI_MAX, StateChange, leaders_are_alive
from moldau.cluster.elections import preferred, unclean
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import ATTEMPTS_MAX, Conflict, Metadata
from moldau.cluster.store import SessionLost, StoreUnavailable
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from moldau.requests.authorization import ALTER, CLUSTER
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order
from moldau.requests.pieces import Pieces

Election = Callable[[ClusterImage, str, int], StateChange | ErrorCode]
Partition = tuple[str, int]

ELECTIONS: dict[int, Election] = {0: preferred, 1: unclean}


PIECES = Pieces("topic_partitions", "replica_election_results", "partitions", "partition_result")


@holds_order
async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    if not context.may(ALTER, CLUSTER):
        return _refusal(request)
    metadata = context.services.metadata
    elect = ELECTIONS.get(request.election_type)
    if elect is None:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = _wanted(request, metadata.image)
    results = await elect_leaders(metadata, elect, wanted)
    if request.topic_partitions is None:
        results = {each: code for each, code in results.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    return ElectLeadersResponse(replica_election_results=_by_topic(results))


def _refusal(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Refusal in Kafka's form: for all, and (0 has no other place) for each partition that is named."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    named = {(each.topic, index): code for each in request.topic_partitions or () for index in each.partitions}
    return ElectLeadersResponse(error_code=code, replica_election_results=_by_topic(named))


def _wanted(request: ElectLeadersRequest, image: ClusterImage) -> list[Partition]:
    if request.topic_partitions is None:
        return [(name, index) for name, topic in image.topics.items() for index in range(len(topic.partitions))]
    asked = ((each.topic, index) for each in request.topic_partitions for index in each.partitions)
    return list(dict.fromkeys(asked))


async def elect_leaders(metadata: Metadata, elect: Election, wanted: Sequence[Partition]) -> dict[Partition, ErrorCode]:
    """The outcome for each partition; what others were always quicker with is for the client to ask again."""
    results: dict[Partition, ErrorCode] = {}
    for _attempt in range(ATTEMPTS_MAX):
        plans = {each: elect(metadata.image, *each) for each in wanted if each not in results}
        results |= {each: plan for each, plan in plans.items() if isinstance(plan, ErrorCode)}
        changes = [plan for plan in plans.values() if isinstance(plan, StateChange)]
        if not changes:
            break
        try:
            await _write(metadata, changes, results)
        except Conflict:
            continue
        except (SessionLost, StoreUnavailable):
            break
    return {each: results.get(each, ErrorCode.REQUEST_TIMED_OUT) for each in wanted}


async def _write(metadata: Metadata, changes: Sequence[StateChange], results: dict[Partition, ErrorCode]) -> None:
    for start in range(0, len(changes), CHANGES_PER_MULTI_MAX):
        batch = changes[start : start + CHANGES_PER_MULTI_MAX]
        await metadata.write(batch, leaders_are_alive(metadata.image, batch))
        results |= {(change.topic, change.index): ErrorCode.NONE for change in batch}


def _by_topic(results: dict[Partition, ErrorCode]) -> list[ReplicaElectionResult]:
    ordered: Iterable[tuple[Partition, ErrorCode]] = sorted(results.items())
    return [
        ReplicaElectionResult(
            topic=topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=_message(code))
                for (_topic, index), code in group
            ],
        )
        for topic, group in groupby(ordered, key=lambda item: item[0][0])
    ]


def _message(code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else code.name.lower().replace("_", " ")
