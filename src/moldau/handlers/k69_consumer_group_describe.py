"""ConsumerGroupDescribe, versions 0 to 1 (KIP-848).

Groups of the consumer protocol with their epochs and each member's current and target assignment. A group of another
kind or none at all is GROUP_ID_NOT_FOUND.

- 1+: says whether a member still speaks the classic protocol (KIP-1099).
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.requests.authorization import DESCRIBE, GROUP, NOT_ASKED, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

PIECES = Pieces("group_ids", "groups", distinct=lambda group_id: group_id)


def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
    described = [_describe(group_id, request, context) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(group_id: str, request: ConsumerGroupDescribeRequest, context: RequestContext) -> DescribedGroup:
    try:
        context.require(DESCRIBE, GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        operations = context.rights(GROUP, group_id) if request.include_authorized_operations else NOT_ASKED
        described = context.services.groups.read(
            group_id, lambda shard: shard.groups.consumer_group(group_id).describe_consumer(operations)
        )
        for topic in _topics(described):
            context.require(DESCRIBE, TOPIC, topic)
        return described
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _topics(group: DescribedGroup) -> set[str]:
    """The topics that a description tells of."""
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment)]
    assigned = {partitions.topic_name for each in assignments for partitions in each.topic_partitions}
    return assigned.union(*(member.subscribed_topic_names for member in group.members))
