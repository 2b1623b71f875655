"""ApiVersions, versions 0 to 4.

Lists the API keys that have a handler, with the versions of their tables; those of client telemetry (KIP-714) only with
`client.telemetry.enable`. A newer version of this request than we
know never comes here: the dispatcher answers it with version 0 and UNSUPPORTED_VERSION (KIP-511).

- 3+: features (KIP-584): the levels that this broker supports, and those at which the cluster works, with their epoch.
  A client goes by `transaction.version`: at 2 it adds partitions to a transaction by producing to them (KIP-890).
- 4+: features whose lowest level is 0 are among the supported ones (KIP-1022).

There is no `metadata.version` or `kraft.version`: those are levels of KRaft, which the metadata store is not.
"""

import re

from moldau.cluster.features import SUPPORTED, finalized
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from moldau.requests.context import RequestContext
from moldau.requests.registry import api_versions_answer

API_VERSIONS_NAMES_CLIENT = 3  # KIP-511
API_VERSIONS_TELLS_LEVEL_0 = 4  # KIP-1022
CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= API_VERSIONS_NAMES_CLIENT and not _names_a_client(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    answer = api_versions_answer(with_telemetry=context.services.config.bool("client.telemetry.enable"))
    if context.api_version < API_VERSIONS_NAMES_CLIENT:
        return answer
    image = context.services.metadata.image
    return ApiVersionsResponse(
        api_keys=answer.api_keys,
        supported_features=_supported(context.api_version),
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized(image).items()
        ],
    )


def _supported(version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=levels.min_level, max_version=levels.max_level)
        for name, levels in SUPPORTED.items()
        if levels.min_level > 0 or version >= API_VERSIONS_TELLS_LEVEL_0
    ]


def _names_a_client(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(CLIENT_SOFTWARE.fullmatch(name) for name in names)
