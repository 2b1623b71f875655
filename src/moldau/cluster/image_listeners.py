"""Who is told of the cluster's image, in the order in which they subscribed: later ones build on earlier ones.

Law: one listener's error is its own. It is logged, the others are told all the same, and the listener itself is told
again, of the whole way from the last image that it took to the one that is there now. So a listener must bear to hear
of a change that it has half made. When it has caught up, those behind it in the order hear of the whole image once
more (from an empty one), because they were told before what they build on was there.
"""

import logging
from collections.abc import Callable

from moldau.cluster.image import ClusterImage

log = logging.getLogger(__name__)

ImageListener = Callable[[ClusterImage, ClusterImage], None]
NOTHING = ClusterImage()


class ImageListeners:
    """The listeners, each with the image that it took last."""

    def __init__(self) -> None:
        self._subscriptions: list[_Subscription] = []

    def subscribe(self, listener: ImageListener, image: ClusterImage) -> Callable[[], None]:
        """Tell `listener` of every change after `image`. Returns what ends it."""
        subscription = _Subscription(listener, image)
        self._subscriptions.append(subscription)
        return lambda: self._subscriptions.remove(subscription)

    def tell(self, image: ClusterImage) -> bool:
        """Bring everybody to `image`; False if somebody could not follow."""
        has_caught_up = False
        for each in tuple(self._subscriptions):
            was_behind = each.is_behind
            each.bring_to(image)
            if has_caught_up and not each.is_behind:
                each.seen = NOTHING
                each.bring_to(image)
            has_caught_up |= was_behind and not each.is_behind
        return not any(each.is_behind for each in self._subscriptions)


class _Subscription:
    __slots__ = ("_listener", "is_behind", "seen")

    def __init__(self, listener: ImageListener, seen: ClusterImage) -> None:
        self._listener = listener
        self.seen = seen
        self.is_behind = False

    def bring_to(self, image: ClusterImage) -> None:
        if self.seen is image:
            return
        try:
            self._listener(self.seen, image)
        except Exception:
            log.exception("the cluster has changed and a part of this broker could not follow; it is told again")
            self.is_behind = True
        else:
            self.seen = image
            self.is_behind = False
