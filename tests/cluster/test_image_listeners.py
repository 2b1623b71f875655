"""One listener's error keeps the cluster's image from nobody, and not for long from itself."""

from moldau.cluster.image import ClusterImage
from moldau.cluster.image_listeners import ImageListeners

FIRST, SECOND, THIRD = (ClusterImage(cluster_id=each) for each in ("first", "second", "third"))


class Listener:
    """Writes down what it was told, and raises when it is asked to."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.is_broken = False

    def __call__(self, old: ClusterImage, new: ClusterImage) -> None:
        self.heard.append((old.cluster_id, new.cluster_id))
        if self.is_broken:
            raise KeyError("a partition that is not there")


class Three:
    """Listeners that were subscribed one after the other; the one in the middle fails at first."""

    def __init__(self) -> None:
        self.listeners = ImageListeners()
        self.before, self.failing, self.behind = (Listener() for _ in range(3))
        for each in (self.before, self.failing, self.behind):
            self.listeners.subscribe(each, FIRST)
        self.failing.is_broken = True


def test_one_listeners_error_keeps_the_image_from_nobody() -> None:
    three = Three()
    assert not three.listeners.bring_to(SECOND)
    assert three.before.heard == three.behind.heard == [("first", "second")]


def test_who_failed_is_told_the_whole_way_from_the_last_image_that_it_took() -> None:
    three = Three()
    three.listeners.bring_to(SECOND)
    three.failing.is_broken = False
    assert three.listeners.bring_to(THIRD)
    assert three.failing.heard == [("first", "second"), ("first", "third")]
    assert three.before.heard == [("first", "second"), ("second", "third")]


def test_who_failed_is_told_again_without_a_new_image() -> None:
    three = Three()
    three.listeners.bring_to(SECOND)
    assert not three.listeners.bring_to(SECOND)
    three.failing.is_broken = False
    assert three.listeners.bring_to(SECOND)
    assert three.failing.heard == [("first", "second")] * 3
    assert three.before.heard == [("first", "second")]
    three.listeners.bring_to(SECOND)
    assert len(three.failing.heard) == 3, "it has taken it"


def test_who_builds_on_a_listener_hears_the_whole_image_when_that_one_has_caught_up() -> None:
    three = Three()
    three.listeners.bring_to(SECOND)
    three.failing.is_broken = False
    three.listeners.bring_to(THIRD)
    assert three.behind.heard == [("first", "second"), ("second", "third"), ("", "third")]


def test_who_has_unsubscribed_is_not_told() -> None:
    listeners, listener = ImageListeners(), Listener()
    end = listeners.subscribe(listener, FIRST)
    end()
    assert listeners.bring_to(SECOND)
    assert listener.heard == []
