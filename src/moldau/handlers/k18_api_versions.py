"""ApiVersions, versions 0 to 4.

Lists the API keys that have a handler, with the versions of their tables. A newer version of this request than we
know never comes here: the dispatcher answers it with version 0 and UNSUPPORTED_VERSION (KIP-511).

Gaps: no feature levels are told; they come with the parts that need them.
"""

import re

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.requests.context import RequestContext
from moldau.requests.registry import api_versions_answer

API_VERSIONS_NAMES_CLIENT = 3  # KIP-511
CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= API_VERSIONS_NAMES_CLIENT and not _names_a_client(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return api_versions_answer()


def _names_a_client(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(CLIENT_SOFTWARE.fullmatch(name) for name in names)
