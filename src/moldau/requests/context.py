"""Context of a request for its handler: the broker's services, and the client with its version."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.records.validate import Allowance
from moldau.requests.authorization import (
    ANONYMOUS,
    CLUSTER,
    DESCRIBE,
    OPERATIONS,
    THE_CLUSTER,
    Authorizer,
    Operation,
    Principal,
    Resource,
    refused,
)
from moldau.requests.groups_access import GroupsAccess
from moldau.requests.opener import Opener
from moldau.requests.parts import Parts
from moldau.requests.policy import RequestPolicy
from moldau.requests.transaction_verification import TransactionVerifier
from moldau.requests.transactions_access import TransactionsAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(Parts):
    """The parts of a running broker that handlers call, and what stands on them: a record, made whole by `broker/`."""

    policy: RequestPolicy
    allowance: Allowance
    groups: GroupsAccess
    transactions: TransactionsAccess
    opener: Opener
    verifier: TransactionVerifier
    logs_made: Callable[[], Awaitable[None]]
    """Returns when every log that the image wants here is made: some wait for their turn."""

    @property
    def authorizer(self) -> Authorizer:
        return self.policy.authorizer


class RequestContext(NamedTuple):
    """One request's circumstances."""

    services: Services
    api_version: int
    client_id: str | None
    listener: str
    client_host: str
    principal: Principal = ANONYMOUS
    client_port: int = 0
    client_software: tuple[str, str] = ("", "")
    """Name and version, as the client introduced itself (KIP-511) before this request."""

    def may(self, operation: Operation, resource: Resource, name: str = THE_CLUSTER) -> bool:
        """Whether the one who asks has this right."""
        return self.services.authorizer.may(self.principal, self.client_host, operation, resource, name)

    def may_on_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether the one who asks may have this right on some resource of the type."""
        return self.services.authorizer.may_on_any(self.principal, self.client_host, operation, resource)

    def require(self, operation: Operation, resource: Resource, name: str = THE_CLUSTER) -> None:
        """Raise ApiError unless the one who asks has this right."""
        if not self.may(operation, resource, name):
            raise refused(resource)

    def cluster_rights(self) -> int:
        """The rights on the cluster; none is told to those who may not describe it."""
        return self.rights(CLUSTER) if self.may(DESCRIBE, CLUSTER) else 0

    def rights(self, resource: Resource, name: str = THE_CLUSTER) -> int:
        """The operations that the one who asks may do, as bits (KIP-430): bit n stands for operation n."""
        return sum(1 << each for each in OPERATIONS[resource] if self.may(each, resource, name))
