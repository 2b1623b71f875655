"""ConsumerGroupHeartbeat, versions 0 to 1 (KIP-848).

A consumer joins (epoch 0), goes on, or leaves (-1, a static member for a while: -2) and is told its epoch and, when
that is news to it, its partitions. The broker assigns: `uniform` or `range`, as most members ask.

- What a request leaves null has not changed since the one before.
- The assignment is in the answer when it changed, when the member joins, and when it told all about itself.
- 0: a member without an id is given one. 1+: it comes with its own (KIP-1082), and may subscribe by a regular
  expression, which the broker resolves; one that is none is INVALID_REGULAR_EXPRESSION.
- The heartbeat interval of an answer is shorter while the group settles (`coordinators/consumer/pace.py`), and at most
  `group.consumer.heartbeat.interval.ms`, which Kafka always names.
- Targets are computed at most once in `group.consumer.assignment.interval.ms` (KIP-1263).
- A group's own `consumer.*` properties hold from the next heartbeat of each member on.

Gaps: a regular expression is resolved at once and not in the background, so its topics are there one heartbeat sooner
than in Kafka.
"""

from moldau.coordinators.consumer.group import validate_heartbeat
from moldau.coordinators.consumer.settings import ConsumerSettings
from moldau.coordinators.groups.group import Caller
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.requests.authorization import DESCRIBE, GROUP, READ, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised


def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | PendingAnswer:
    services = context.services
    caller = Caller(context.api_version, context.client_id or "", f"/{context.client_host}")
    try:
        context.require(READ, GROUP, request.group_id)
        for topic in request.subscribed_topic_names or ():
            context.require(DESCRIBE, TOPIC, topic)
        validate_heartbeat(request, context.api_version, ConsumerSettings.of(services.config).assignors)
    except ApiError as error:
        return _refused(error)
    answer = services.groups.answer(
        request.group_id, lambda shard: shard.groups.consumer_heartbeat(request, caller), _refused
    )
    return promised(answer)


def _refused(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
