"""Operations and resources of Kafka's ACLs (KIP-11), and the rights that each API key needs.

A handler asks `context.may` or `context.require`. What one may not describe is told as if nobody knew whether it
exists: the code is that of the refusal, and lists leave it out.
"""

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from moldau.protocol.errors import ApiError, ErrorCode


class Operation(IntEnum):
    """The numbers of the protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """The types of what operations are done on; the numbers of the protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    Operation
)
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = Resource

THE_CLUSTER: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

REFUSALS: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

NEEDED: Final[dict[int, tuple[tuple[Operation, Resource], ...]]] = {
    0: ((WRITE, TOPIC), (WRITE, TRANSACTIONAL_ID)),
    1: ((READ, TOPIC), (CLUSTER_ACTION, CLUSTER)),  # of a consumer; of a follower
    2: ((DESCRIBE, TOPIC),),
    3: ((DESCRIBE, TOPIC), (CREATE, CLUSTER), (CREATE, TOPIC)),  # either of the last two, to create what is missing
    8: ((READ, GROUP), (READ, TOPIC)),
    9: ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
    10: ((DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID)),
    11: ((READ, GROUP),),
    12: ((READ, GROUP),),
    13: ((READ, GROUP),),
    14: ((READ, GROUP),),
    15: ((DESCRIBE, GROUP),),
    16: ((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)),  # all groups; those that one may describe
    18: (),
    19: ((CREATE, CLUSTER), (CREATE, TOPIC), (DESCRIBE_CONFIGS, TOPIC)),  # either of the first two; to be told configs
    20: ((DELETE, CLUSTER), (DELETE, TOPIC), (DESCRIBE, TOPIC)),  # either of the first two; to be told an id's name
    21: ((DELETE, TOPIC),),
    22: ((WRITE, TRANSACTIONAL_ID), (IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)),  # without an id: either of the last
    23: ((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),  # either
    24: ((WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC), (CLUSTER_ACTION, CLUSTER)),  # of a client; of a broker
    25: ((WRITE, TRANSACTIONAL_ID), (READ, GROUP)),
    26: ((WRITE, TRANSACTIONAL_ID),),
    27: ((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),  # either
    28: ((WRITE, TRANSACTIONAL_ID), (READ, GROUP), (READ, TOPIC)),
    32: ((DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, GROUP), (DESCRIBE_CONFIGS, CLUSTER)),
    33: ((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),
    35: ((DESCRIBE, CLUSTER),),
    37: ((ALTER, TOPIC),),
    42: ((DELETE, GROUP),),
    43: ((ALTER, CLUSTER),),
    44: ((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)),
    45: ((ALTER, CLUSTER),),
    46: ((DESCRIBE, CLUSTER),),
    47: ((DELETE, GROUP), (READ, TOPIC)),
    57: ((ALTER, CLUSTER),),
    60: ((DESCRIBE, CLUSTER),),  # only to be told one's rights
    61: ((READ, TOPIC),),
    65: ((DESCRIBE, TRANSACTIONAL_ID), (DESCRIBE, TOPIC)),
    66: ((DESCRIBE, TRANSACTIONAL_ID),),
    68: ((READ, GROUP), (DESCRIBE, TOPIC)),
    69: ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
    71: (),
    72: (),
    74: ((DESCRIBE_CONFIGS, CLUSTER),),
    75: ((DESCRIBE, TOPIC),),
}
"""Rights that the handler of each API key asks for, besides those that it is to tell of (KIP-430): the same as in Kafka
4.3.1, which `tests/handlers/test_rights_of_kafka.py` asks."""


class Principal(NamedTuple):
    """Sender of requests, as authentication has found."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Authorizer(Protocol):
    """Decides who may do what. An operation that implies another (READ implies DESCRIBE) allows it, too."""

    def may(self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str) -> bool: ...

    def may_on_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there may be a resource of this type on which it is allowed."""
        ...


class AllowEverything:
    """Anybody may do anything: a broker without an authorizer."""

    def may(self, _principal: Principal, _host: str, _operation: Operation, _resource: Resource, _name: str) -> bool:
        return True

    def may_on_any(self, _principal: Principal, _host: str, _operation: Operation, _resource: Resource) -> bool:
        return True


def refused(resource: Resource) -> ApiError:
    """The error of whoever may not do what it asks for; it does not say what is missing."""
    return ApiError(REFUSALS[resource], "authorization failed")


OPERATIONS: Final = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}
"""Operations that each kind of resource knows, for clients that ask for their rights (KIP-430)."""

NOT_ASKED: Final = -(2**31)
