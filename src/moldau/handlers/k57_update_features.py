"""UpdateFeatures, versions 0 to 2 (KIP-584, KIP-1022).

Raises or lowers the finalized levels of features, for the whole cluster: all that are named, or none. Level 0 takes a
feature back. Any broker serves it; the answer comes when the store has the new levels, and every broker goes by them as
soon as it has heard of it.

- An unknown feature, a level that is not supported, a lower level without a downgrade being asked for, and a higher one
  with it: INVALID_UPDATE_VERSION, and the message names the feature.
- 0 says by `allow_downgrade` which way a level may go, 1+ by `upgrade_type`; safe and unsafe downgrades are the same.
- 0 and 1 list each feature in the answer, if all went well; 2 has no list.
- 1+: `validate_only` changes nothing.

Gaps: the levels of brokers that are alive are not compared, as every broker of this version supports the same.
"""

from moldau.cluster.features import FeatureUpdate, UpgradeType, updated
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.requests.authorization import ALTER, CLUSTER
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order

UPDATE_FEATURES_HAS_UPGRADE_TYPES = 1  # KIP-778
UPDATE_FEATURES_LISTS_NOTHING = 2  # KIP-1022
UPDATES_MAX = 100
"""Nobody has so many features: a longer request is a mistake."""


@holds_order
async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    try:
        await _update(request, context)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    if context.api_version >= UPDATE_FEATURES_LISTS_NOTHING:
        return UpdateFeaturesResponse(error_message=None)
    results = [UpdatableFeatureResult(feature=each.feature, error_message=None) for each in request.feature_updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


async def _update(request: UpdateFeaturesRequest, context: RequestContext) -> None:
    context.require(ALTER, CLUSTER)
    if len(request.feature_updates) > UPDATES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {UPDATES_MAX} features")
    metadata = context.services.metadata
    updates = [_asked(each, context.api_version) for each in request.feature_updates]
    if request.validate_only:
        updated(metadata.image.features, updates)
    else:
        await metadata.alter_features(lambda features: updated(features, updates))


def _asked(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version >= UPDATE_FEATURES_HAS_UPGRADE_TYPES:
        return FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
    way = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, way)
