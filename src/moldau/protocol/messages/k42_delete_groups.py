"""DeleteGroups (key 42), versions 0 to 2."""

from moldau.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class DeleteGroupsRequest(Message, api_key=42, versions=(0, 2), flexible=2):
    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
