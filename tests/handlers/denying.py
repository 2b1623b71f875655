"""Authorizers that deny, or allow, only what a test chooses."""

from moldau.requests.authorization import (
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    Operation,
    Principal,
    Resource,
)

Right = tuple[Operation, Resource]


class Deny:
    """Denies some operations on every resource of a type, and remembers what it was asked."""

    def __init__(self, *denied: Right) -> None:
        self.denied = set(denied)
        self.asked: set[Right] = set()

    def may(self, _principal: Principal, _host: str, operation: Operation, resource: Resource, _name: str) -> bool:
        self.asked.add((operation, resource))
        return (operation, resource) not in self.denied

    def may_on_any(self, _principal: Principal, _host: str, operation: Operation, resource: Resource) -> bool:
        return self.may(_principal, _host, operation, resource, "")


IMPLIED = {DESCRIBE: (READ, WRITE, DELETE, ALTER), DESCRIBE_CONFIGS: (ALTER_CONFIGS,)}
"""Which rights bring another one along, in Kafka's authorizer."""


class Allow:
    """Allows some operations on every resource of a type, and what they imply."""

    def __init__(self, *allowed: Right) -> None:
        self._allowed = set(allowed)

    def may(self, _principal: Principal, _host: str, operation: Operation, resource: Resource, _name: str) -> bool:
        return any((each, resource) in self._allowed for each in (operation, *IMPLIED.get(operation, ())))

    def may_on_any(self, _principal: Principal, _host: str, operation: Operation, resource: Resource) -> bool:
        return self.may(_principal, _host, operation, resource, "")
