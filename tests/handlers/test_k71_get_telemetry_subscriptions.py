"""GetTelemetrySubscriptions, and the configuration of what is asked for."""

from functools import partial
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest
from moldau.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from moldau.protocol.schema import ZERO_UUID
from moldau.requests import telemetry
from moldau.requests.opener import InlineOpener
from tests.handlers.conftest import World

CLIENT_METRICS = 16
enabled = pytest.mark.moldau({"client.telemetry.enable": "true"})
SET, DELETE, APPEND = 0, 1, 2


def configure(world: World, name: str, configs: dict[str, str | None], operation: int = SET) -> int:
    changes = [AlterableConfig(name=key, config_operation=operation, value=text) for key, text in configs.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
    code: int = world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
    return code


def described(world: World, name: str) -> dict[str, tuple[str | None, int]]:
    asked = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
    (result,) = world.ask(DescribeConfigsRequest(resources=[asked])).results
    assert result.error_code == 0, result.error_message
    return {each.name: (each.value, each.config_source) for each in result.configs}


@pytest.mark.parametrize("properties", [{}, {"client.telemetry.enable": "true"}])
def test_the_keys_are_told_only_where_somebody_receives(properties: dict[str, str]) -> None:
    world = World(properties)
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    told = {each.api_key for each in world.ask(request).api_keys}
    assert ({71, 72} <= told) == bool(properties)
    answer = world.ask(GetTelemetrySubscriptionsRequest())
    assert answer.error_code == (0 if properties else ErrorCode.UNSUPPORTED_VERSION)
    world.close()


@enabled
def test_a_client_without_an_id_gets_one_and_is_asked_for_nothing_without_a_subscription(world: World) -> None:
    answer = world.ask(GetTelemetrySubscriptionsRequest())
    assert answer.client_instance_id != ZERO_UUID
    assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (1_048_576, True)


@enabled
def test_subscriptions_that_fit_are_put_together(world: World) -> None:
    assert configure(world, "a", {"metrics": "one., two.", "interval.ms": "2000", "match": "client_id=t.*"}) == 0
    assert configure(world, "b", {"metrics": "three.", "interval.ms": "1000"}) == 0
    assert configure(world, "c", {"metrics": "never.", "interval.ms": "100", "match": "client_id=es"}) == 0
    answer = world.ask(GetTelemetrySubscriptionsRequest())
    assert (answer.requested_metrics, answer.push_interval_ms) == (["one.", "three.", "two."], 1000)
    first = answer.subscription_id
    assert configure(world, "b", {"metrics": "*"}) == 0
    world.clock.advance(1000)
    again = world.ask(GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id))
    assert again.requested_metrics == ["*"]
    assert again.subscription_id != first


@enabled
def test_one_who_asks_again_too_early_waits(world: World) -> None:
    id_ = world.ask(GetTelemetrySubscriptionsRequest()).client_instance_id
    request = GetTelemetrySubscriptionsRequest(client_instance_id=id_)
    assert world.ask(request).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(300_000)
    assert world.ask(request).error_code == 0


def test_a_subscription_is_configured_described_listed_and_removed(world: World) -> None:
    assert described(world, "a") == {"metrics": ("", 5), "interval.ms": ("300000", 5), "match": ("", 5)}
    assert configure(world, "a/b", {"metrics": "one."}) == 0
    assert configure(world, "a/b", {"metrics": "two."}, APPEND) == 0
    assert described(world, "a/b")["metrics"] == ("one.,two.", 7)
    for version in (0, 1):
        listed = world.ask(ListConfigResourcesRequest(), version).config_resources
        assert [each.resource_name for each in listed if version == 0 or each.resource_type == CLIENT_METRICS] == [
            "a/b"
        ]
    assert configure(world, "a/b", {"metrics": None}, DELETE) == 0
    assert world.ask(ListConfigResourcesRequest(), 0).config_resources == []


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"nonsense": "1"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "99"}, ErrorCode.INVALID_CONFIG),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=" + "(a{1000}){1000}"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_bad_subscription_is_refused(world: World, configs: dict[str, str | None], code: int) -> None:
    assert configure(world, "a", configs) == code
    assert configure(world, "", {"metrics": "one."}) == ErrorCode.INVALID_REQUEST


def test_subscriptions_their_patterns_and_metrics_have_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "SUBSCRIPTIONS_MAX", 3)
    monkeypatch.setattr(telemetry, "PATTERNS_MAX", 4)
    monkeypatch.setattr(telemetry, "METRICS_MAX", 5)
    two: dict[str, str | None] = {"match": "client_id=a,client_software_name=b", "metrics": "one,two"}
    assert [configure(world, name, two) for name in "aba"] == [0, 0, 0]
    assert configure(world, "c", {"match": "client_id=a"}) == ErrorCode.POLICY_VIOLATION
    assert configure(world, "c", {"metrics": "three,four"}) == ErrorCode.POLICY_VIOLATION
    assert configure(world, "c", {"metrics": "three"}) == 0
    assert configure(world, "d", {"interval.ms": "1000"}) == ErrorCode.POLICY_VIOLATION
    assert configure(world, "a", {"match": None}, DELETE) == 0
    assert configure(world, "c", {"match": "client_id=a"}) == 0


@enabled
def test_patterns_are_compiled_and_tried_off_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    async def elsewhere(_: InlineOpener, work: "partial[Any]") -> Any:
        ran.append(work.func.__qualname__)
        return work()

    monkeypatch.setattr(InlineOpener, "run", elsewhere)
    assert configure(world, "a", {"metrics": "one.", "match": "client_id=t.*"}) == 0
    answer = world.ask(GetTelemetrySubscriptionsRequest())
    assert (answer.requested_metrics, ran) == (["one."], ["Matcher.wish"])
    world.clock.advance(300_000)
    world.ask(GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id))
    assert ran == ["Matcher.wish"], "of one client once, as long as the subscriptions stay"


@enabled
def test_clients_have_a_bound_and_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "INSTANCES_MAX", 3)
    for _ in range(5):
        world.ask(GetTelemetrySubscriptionsRequest())
    held = world.services.telemetry
    assert len(held.instances(world.clock.monotonic_ms())) == 3
    assert held.instances(world.clock.monotonic_ms() + 900_001) == []
