"""An authorizer that denies what a test chooses."""

from moldau.requests.authorization import Operation, Principal, Resource

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
