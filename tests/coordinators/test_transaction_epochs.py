"""Epochs at their end: any order of requests, timeouts and coordinators keeps every promise that was made."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinators.transactions.transaction import PRODUCER_EPOCH_MAX, Producer
from moldau.protocol.errors import ApiError, ErrorCode
from tests.coordinators.transactions_driver import FAILED, ID, TIMEOUT_MS, Driver, code_of
from tests.selection import examples

STEPS = (
    "init",
    "go on",
    "go on, answer lost",
    "add",
    "commit",
    "commit, answer lost",
    "abort",
    "abort, answer lost",
    "late commit",
    "late abort",
    "zombie goes on",
    "overdue",
    "markers are written",
    "coordinator moves",
    "replicas are slow",
)
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Model:
    """One live producer, the zombies that it has outlived, and what the coordinator has promised them."""

    def __init__(self, epoch: int, epoch_max: int, version: int) -> None:
        self.driver = Driver(epoch_max=epoch_max, transaction_version=version)
        self.epoch_max = epoch_max
        self.version = version
        self.driver.init()
        self.live = self.driver.jump_to(epoch)
        self.zombies: list[Producer] = []
        self.given = {self.live}

    def step(self, name: str) -> None:
        try:
            self._step(name)
        except ApiError as error:
            if error.code not in RETRIED:
                self._is_over(error.code)
        self.check()

    def _step(self, name: str) -> None:
        driver, is_commit = self.driver, "commit" in name
        if name == "init":
            self._becomes(driver.init(), is_new=True)
        elif name.startswith("go on"):
            found = driver.init(self.live)
            if "lost" in name:
                assert driver.init(self.live) == found
            self._becomes(found)
        elif name == "add":
            driver.add(self.live, version=self.version)
        elif name in ("late commit", "late abort") and self.zombies and self.version == 2:
            self._refused(lambda: driver.end(self.zombies[-1], committed=is_commit))
        elif name == "zombie goes on" and self.zombies:
            self._refused(lambda: driver.init(self.zombies[-1]))
        elif name.startswith(("commit", "abort")):
            self._end(is_commit, is_lost="lost" in name)
        elif name == "overdue":
            driver.pass_time(TIMEOUT_MS + 1)
            driver.clean_up()
        elif name == "markers are written" and ID in driver.markers.under_way:
            driver.written()
        elif name == "coordinator moves":
            driver.reload()
        elif name == "replicas are slow":
            driver.fails_with = FAILED
            code_of(lambda: driver.add(self.live, version=self.version))
            driver.pass_time(TIMEOUT_MS + 1)
            driver.clean_up()
            driver.fails_with = 0
            driver.pass_time(1_000)

    def _end(self, is_commit: bool, *, is_lost: bool) -> None:
        found = self.driver.end(self.live, committed=is_commit, version=self.version)
        if is_lost and self.version == 2 and self.driver.transaction().is_prepared:
            self._settle()
            assert self.driver.end(self.live, committed=is_commit) == found
        if self.version == 2:
            self._becomes(found)

    def _becomes(self, producer: Producer, *, is_new: bool = False) -> None:
        """`producer` was given out: to the live one, or in its place."""
        assert 0 <= producer.producer_epoch < self.epoch_max, "an epoch that nobody could be fenced at"
        assert producer not in self.zombies
        if is_new:
            assert producer not in self.given
            self.zombies.append(self.live)
        self.given.add(producer)
        self.live = producer

    def _is_over(self, code: ErrorCode) -> None:
        """The live producer has to begin anew; that must always be possible."""
        assert code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        self._settle()
        if self.driver.state() == "Ongoing":
            return
        self._becomes(self.driver.init(), is_new=True)

    def _refused(self, call: object) -> None:
        before = self.driver.transaction()
        assert callable(call)
        try:
            call()
        except ApiError:
            assert self.driver.transaction() == before
        else:
            raise AssertionError("a zombie was answered")

    def _settle(self) -> None:
        if ID in self.driver.markers.under_way:
            self.driver.written()
        self.driver.timers.advance(0)

    def check(self) -> None:
        now = self.driver.transaction()
        assert 0 <= now.producer_epoch <= self.epoch_max
        if not now.is_prepared:
            assert now.next_producer_id == -1
        if now.state.value == "Ongoing":
            assert now.producer_epoch < self.epoch_max

    def end(self) -> None:
        """Whatever happened: after the faults the id is free in a bounded number of steps, and works."""
        for _ in range(4):
            self._settle()
            if code_of(lambda: self.driver.init(timeout_ms=TIMEOUT_MS)) is ErrorCode.NONE:
                break
        producer = self.driver.init()
        self.driver.commit_one(producer, version=self.version)
        assert self.driver.state() == "CompleteCommit"


def play(model: Model, steps: list[str]) -> None:
    for each in steps:
        model.step(each)
    model.end()


any_steps = st.lists(st.sampled_from(STEPS), max_size=25)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(32760, 32765), st.sampled_from((0, 2)), any_steps)
def test_near_the_last_epoch_every_promise_is_kept(epoch: int, version: int, steps: list[str]) -> None:
    play(Model(epoch, PRODUCER_EPOCH_MAX, version), steps)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from((0, 2)), any_steps)
def test_with_epochs_that_end_at_once_every_promise_is_kept(version: int, steps: list[str]) -> None:
    play(Model(0, 2, version), steps)


@settings(max_examples=examples(200), deadline=None)
@given(any_steps)
def test_what_is_decided_is_what_a_replay_of_the_log_gives(steps: list[str]) -> None:
    model = Model(32764, PRODUCER_EPOCH_MAX, 2)
    for each in steps:
        model.step(each)
    model.driver.timers.advance(0)  # what is due comes after a reload, too
    before = model.driver.transaction()
    model.driver.reload()
    assert model.driver.transaction() == before
