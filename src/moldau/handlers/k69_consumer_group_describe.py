"""ConsumerGroupDescribe, versions 0 to 1 (KIP-848).

Groups of the consumer protocol with their epochs and each member's current and target assignment. A group of another
kind or none at all is GROUP_ID_NOT_FOUND.

- 1+: says whether a member still speaks the classic protocol (KIP-1099).
"""

from moldau.handlers.authorization import GROUP_OPERATIONS, NOT_ASKED
from moldau.handlers.context import RequestContext
from moldau.handlers.pieces import Pieces
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

PIECES = Pieces("group_ids", "groups", distinct=lambda group_id: group_id)


def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
    described = [_describe(group_id, request, context) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(group_id: str, request: ConsumerGroupDescribeRequest, context: RequestContext) -> DescribedGroup:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return context.services.groups.read(
            group_id, lambda shard: shard.groups.consumer_group(group_id).describe_consumer(operations)
        )
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
