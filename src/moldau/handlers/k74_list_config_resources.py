"""ListConfigResources, versions 0 to 1.

What has a configuration that can be described. Version 0 is ListClientMetricsResources (KIP-714).

- 1+: topics, brokers, brokers' loggers, and subscriptions to client metrics and groups that have set something, by
  type, all of them if no type is asked for (KIP-1142). A type that nobody knows is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterable

from moldau.cluster.image import ClusterImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from moldau.requests.authorization import CLUSTER, DESCRIBE_CONFIGS
from moldau.requests.config_resources import ResourceType
from moldau.requests.context import RequestContext

LIST_OTHER_THAN_CLIENT_METRICS = 1  # KIP-1142


def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    if not context.may(DESCRIBE_CONFIGS, CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    types = set(request.resource_types) or set(ResourceType)
    if context.api_version < LIST_OTHER_THAN_CLIENT_METRICS:
        types = {ResourceType.CLIENT_METRICS}
    if not types <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.services.metadata.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=type_)
            for type_ in sorted(types)
            for name in _names(ResourceType(type_), image)
        ]
    )


def _names(type_: ResourceType, image: ClusterImage) -> Iterable[str]:
    if type_ is ResourceType.TOPIC:
        return image.topics
    if type_ in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, image.brokers)
    if type_ is ResourceType.GROUP:
        return image.group_configs
    return image.client_metrics
