"""Listeners of the cluster's image, in the order in which they subscribed: later ones build on earlier ones.

Law: one listener's error is its own. It is logged, the others are called all the same, and the listener itself is
called again, for the whole way from the last image that it took to the present one. So a listener must bear to hear of
a change that it has half made. When it has caught up, the listeners behind it hear of the whole image once more (from
an empty one), because they were called before the things that they build on were there.
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
        """Call `listener` with every change after `image`. Returns a function that ends this."""
        subscription = _Subscription(listener, image)
        self._subscriptions.append(subscription)
        return lambda: self._subscriptions.remove(subscription)

    def bring_to(self, image: ClusterImage) -> bool:
        """Bring every listener to `image`; False if one could not follow."""
        has_caught_up = False
        for each in tuple(self._subscriptions):
            was_behind = each.is_behind
            each.bring_to(image)
            if has_caught_up and not each.is_behind:
                each.taken = NOTHING
                each.bring_to(image)
            has_caught_up |= was_behind and not each.is_behind
        return not any(each.is_behind for each in self._subscriptions)


class _Subscription:
    __slots__ = ("_listener", "is_behind", "taken")

    def __init__(self, listener: ImageListener, taken: ClusterImage) -> None:
        self._listener = listener
        self.taken = taken
        self.is_behind = False

    def bring_to(self, image: ClusterImage) -> None:
        if self.taken is image:
            return
        try:
            self._listener(self.taken, image)
        except Exception:
            log.exception("the cluster has changed and a part of this broker could not follow; it is called again")
            self.is_behind = True
        else:
            self.taken = image
            self.is_behind = False
