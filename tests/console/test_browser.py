"""The console in a real browser: the main journeys, no barrier that axe-core calls serious, and pictures for the docs.

`MOLDAU_SCREENSHOTS=docs/console` writes the pictures.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it brings no types
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from moldau.console.security.users import READER, new_user, write_users
from moldau.testing import broker, cluster
from moldau.testing.brokers import BrokerInThread
from moldau.testing.clusters import ClusterInThread
from moldau.testing.ports import free_ports
from tests.console.runs import PIPELINE, run_of

pytestmark = pytest.mark.foreign

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WAIT_MS = 20_000
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 390, "height": 800}
SERIOUS = ("serious", "critical")
PASSWORD = "correct horse"
PROPERTIES = {
    "default.replication.factor": "3",
    "num.partitions": "3",
    "replica.lag.time.max.ms": "2000",
    "metrics.listener": "127.0.0.1:0",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ClusterInThread]:
    with cluster(3, properties=PROPERTIES) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if found is None:
        pytest.fail("chromium is not there: run `make tools`")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


def start_console(bootstrap: str, directory: Path, *more: str) -> tuple["subprocess.Popen[str]", str]:
    """A console's process, and its address."""
    command = [sys.executable, "-m", "moldau", "console", "--bootstrap-server", bootstrap, "--port", "0"]
    own = ["--sample-seconds", "0.3", "--audit-log", str(directory / "audit.jsonl")]
    process = subprocess.Popen([*command, *own, *more], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready = re.search(r"ready at (\S+)/\n", process.stdout.readline())
    assert ready is not None
    return process, ready[1]


@pytest.fixture(scope="module")
def address(kafka: ClusterInThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("console")
    file = directory / "visits.yaml"
    file.write_text(PIPELINE)
    metrics = ",".join(str(each.broker.metrics_address) for each in kafka.brokers.values())
    process, where = start_console(kafka.bootstrap, directory, "--metrics", metrics, "--pipeline", str(file))
    with run_of(file):
        yield where
    process.terminate()
    assert process.wait(20) == 0


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(base_url=address, viewport=WIDE)
    context.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    yield opened
    context.close()
    assert complaints == []


def create_topic(page: Page, name: str) -> None:
    page.goto("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Partitions", exact=True).fill("3")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status").first).to_contain_text(f"topic {name} is made")


def produce(kafka: ClusterInThread | BrokerInThread, topic: str, *values: str, client_id: str = "website") -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": client_id, "log_level": 0})
    for value in values:
        producer.produce(topic, value.encode(), b"k", 0)
    assert producer.flush(20) == 0


def commit(kafka: ClusterInThread | BrokerInThread, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_create_a_topic_produce_tail_and_filter(page: Page, kafka: ClusterInThread) -> None:
    create_topic(page, "shop.visits")
    page.goto("/topics/shop.visits")
    page.get_by_text("Produce a record").click()
    form = page.locator("form[action$=produce]")
    form.get_by_label("Key").fill("anna")
    form.get_by_label("Value", exact=True).fill('{"country": "CZ", "amount": 7}')
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("status").first).to_contain_text("a record is written")
    page.get_by_role("link", name="Live tail").click()
    expect(page.locator("#tail[data-state=open]")).to_be_visible()
    produce(kafka, "shop.visits", '{"country": "DE", "amount": 90}', "<script>document.title = 'owned'</script>")
    expect(page.locator("#tail tbody tr")).to_have_count(2)
    picture(page, "tail")
    assert "owned" not in page.title()
    page.goto("/topics/shop.visits/records?from=beginning")
    expect(page.locator(".records tbody tr")).to_have_count(3)
    page.get_by_role("textbox", name="Filter").fill('value.country == "CZ"')
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".records tbody tr")).to_have_count(1)
    expect(page.locator(".records tbody")).to_contain_text("anna")


def test_a_tail_misses_nothing_while_its_console_restarts(page: Page, kafka: ClusterInThread, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    produce(kafka, "shop.parcels", "before")
    process, where = start_console(kafka.bootstrap, tmp_path, "--port", str(port))
    page.goto(f"{where}/topics/shop.parcels/records?from=tail")
    expect(page.locator("#tail[data-state=open]")).to_be_visible()
    rows = page.locator("#tail tbody tr")
    produce(kafka, "shop.parcels", "one", "two")
    expect(rows).to_have_count(2)
    process.terminate()
    assert process.wait(20) == 0
    expect(page.locator("#tail-state")).to_have_text("The console does not answer; trying again.")
    produce(kafka, "shop.parcels", "three")
    process, _ = start_console(kafka.bootstrap, tmp_path, "--port", str(port))
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("three")
    process.terminate()
    assert process.wait(20) == 0


def test_lag_grows_and_shrinks_before_the_eyes_and_offsets_are_reset(page: Page, kafka: ClusterInThread) -> None:
    create_topic(page, "shop.orders")
    produce(kafka, "shop.orders", *map(str, range(5)))
    commit(kafka, "billing", "shop.orders", 5)
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    page.goto("/groups")
    page.get_by_role("link", name="billing").click()
    lag = page.locator("#lag")
    expect(lag).to_have_text("0")
    produce(kafka, "shop.orders", *map(str, range(7)))
    expect(lag).to_have_text("7")
    commit(kafka, "billing", "shop.orders", 10)
    expect(lag).to_have_text("2")
    page.get_by_text("Reset offsets").click()
    page.locator("select[name=to]").select_option("shift")
    page.get_by_label("Offset, shift or time").fill("-4")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("row", name=re.compile("^0 0 12 10 6 -4 6"))).to_be_visible()
    picture(page, "reset")
    page.get_by_role("button", name="Reset these offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("3 offsets of billing are reset")
    expect(lag).to_have_text("6")


def test_what_somebody_looks_at_stays_while_figures_change(page: Page, kafka: ClusterInThread) -> None:
    """On a phone a table is scrolled sideways; with a keyboard one walks through a page that changes meanwhile."""
    create_topic(page, "shop.returns")
    page.set_viewport_size(NARROW)
    page.goto("/topics/shop.returns")
    table = page.get_by_role("region", name="Partitions")
    table.evaluate("each => { each.scrollLeft = 80; each.focus(); }")
    produce(kafka, "shop.returns", *map(str, range(5)))
    expect(table.get_by_role("row", name=re.compile(r"^0 .* 0 5 5 "))).to_be_attached()
    expect(table).to_be_focused()
    assert table.evaluate("each => each.scrollLeft") == 80
    summary = page.locator("#topic summary").first
    expect(summary).to_be_attached()
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#topic details").first).to_have_attribute("open", "")
    produce(kafka, "shop.returns", *map(str, range(4)))
    expect(table.get_by_role("row", name=re.compile(r"^0 .* 0 9 9 "))).to_be_attached()
    expect(summary).to_be_focused()
    expect(page.locator("#topic details").first).to_have_attribute("open", "")


def test_a_dead_letter_is_sent_back(page: Page, kafka: ClusterInThread) -> None:
    create_topic(page, "shop.payments")
    said = {"pipeline": "shop", "topic": "shop.payments", "partition": "0", "offset": "4", "reason": "no JSON"}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    headers: list[tuple[str, str | bytes | None]] = [
        (f"moldau.dlq.{name}", value.encode()) for name, value in said.items()
    ]
    producer.produce("shop.dead", b"<payment>", b"k", 0, headers=headers)
    assert producer.flush(20) == 0
    page.goto("/topics?q=shop.dead")
    expect(page.get_by_role("link", name="shop.dead")).to_be_visible()
    page.goto("/letters")
    page.get_by_role("link", name="shop.dead").click()
    picture(page, "letters")
    page.get_by_role("button", name="Redrive letter 0:0").click()
    expect(page.get_by_role("status").first).to_contain_text("1 letter was sent back")
    expect(page.get_by_text("All were sent back.")).to_be_visible()
    page.goto("/topics/shop.payments/records")
    expect(page.locator(".records tbody tr")).to_have_count(1)


def test_a_broker_dies_and_returns_while_somebody_looks(page: Page, kafka: ClusterInThread) -> None:
    create_topic(page, "shop.stock")
    page.goto("/")
    expect(page.locator("#overview .tag.ok")).to_have_count(3)
    kafka.kill(3)
    expect(page.get_by_text("broker 3 is not there")).to_be_visible()
    expect(page.get_by_text("are under-replicated").first).to_be_visible()
    picture(page, "overview-problems")
    kafka.start(3)
    expect(page.get_by_text("None: every partition has a leader")).to_be_visible()


def test_a_reader_logs_in_and_may_change_nothing(browser: Browser, kafka: ClusterInThread, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    write_users(users, {"rudolf": new_user("rudolf", READER, PASSWORD)})
    process, where = start_console(kafka.bootstrap, tmp_path, "--users", str(users))
    page = browser.new_page(base_url=where)
    page.goto("/topics")
    page.get_by_label("Name").fill("rudolf")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    expect(page.get_by_text("read only")).to_be_visible()
    picture(page, "reader")
    expect(page.get_by_text("Create a topic")).to_have_count(0)
    page.get_by_role("button", name="Log out rudolf").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.close()
    process.terminate()
    assert process.wait(20) == 0


def test_figures_that_are_old_are_said_to_be_old(page: Page, kafka: ClusterInThread, tmp_path: Path) -> None:
    """A page whose console has gone, or whose session has ended, still shows what it knew."""
    users = tmp_path / "users.json"
    rudolf = new_user("rudolf", READER, PASSWORD)
    write_users(users, {"rudolf": rudolf})
    process, where = start_console(kafka.bootstrap, tmp_path, "--users", str(users))
    page.goto(f"{where}/topics")
    page.get_by_label("Name").fill("rudolf")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    stale = page.locator("#stale")
    expect(stale).to_be_hidden()
    write_users(users, {"another": new_user("another", READER, PASSWORD)})
    expect(stale).to_contain_text(re.compile("Not updated since .*: log in again"))
    write_users(users, {"rudolf": rudolf})
    process.terminate()
    assert process.wait(20) == 0
    expect(stale).to_contain_text(re.compile("Not updated since .*: the console does not answer"))
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()


def test_who_writes_and_who_reads_is_a_graph_whose_boxes_lead_on(page: Page, tmp_path: Path) -> None:
    with broker({"metrics.listener": "127.0.0.1:0"}) as one:
        produce(one, "reviews", "fine", client_id="reviewer")
        commit(one, "moderation", "reviews", 1)
        process, where = start_console(one.bootstrap, tmp_path, "--metrics", str(one.broker.metrics_address))
        page.goto(f"{where}/topology")
        expect(page.locator("svg.graph")).to_contain_text("reviewer")
        page.get_by_role("link", name="group moderation").click()
        expect(page.get_by_role("heading", name="Group moderation")).to_be_visible()
        process.terminate()
        assert process.wait(20) == 0


def test_the_run_of_a_pipeline_is_shown_and_stopped(page: Page, kafka: ClusterInThread, tmp_path: Path) -> None:
    file = tmp_path / "visits.yaml"
    file.write_text(PIPELINE)
    process, where = start_console(kafka.bootstrap, tmp_path, "--pipeline", str(file))
    with run_of(file) as run:
        page.goto(f"{where}/pipelines")
        page.get_by_role("link", name="visits").click()
        expect(page.locator("#pipeline .tag.ok")).to_have_text("running")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("status").first).to_contain_text("visits is stopped")
        assert run.wait(20) == 0
    process.terminate()
    assert process.wait(20) == 0


def test_without_scripts_pages_can_be_read_and_forms_work(browser: Browser, address: str) -> None:
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto("/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("plain.topic")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status").first).to_contain_text("topic plain.topic is made")
    for path in PAGES.values():
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
    page.goto("/groups/billing")
    expect(page.locator("svg").first).to_be_visible()
    for path in PAGES.values():
        page.goto(path)
        expect(page.locator("#pause")).to_be_hidden()
    context.close()


def test_each_page_is_json_too(browser: Browser, address: str) -> None:
    context = browser.new_context(base_url=address)
    for name, path in PAGES.items():
        answer = context.request.get(path + ("&" if "?" in path else "?") + "format=json")
        assert answer.headers["content-type"] == "application/json", name
        assert answer.json()
    context.close()


def test_the_keyboard_reaches_the_content_first(page: Page) -> None:
    page.goto("/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/shop.orders",
    "clients": "/clients",
    "topology": "/topology?q=shop",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/visits",
    "records": "/topics/shop.visits/records",
    "group": "/groups/billing",
    "reset": "/groups/billing/reset?topic=shop.orders&to=earliest",
    "letters": "/letters",
    "letters-of": "/letters/shop.dead",
    "transactions": "/transactions",
    "tail": "/topics/shop.visits/records?from=tail",
    "error": "/nowhere",
}


OPEN = "open => { for (const each of document.querySelectorAll('details')) each.open = open; }"
"""Script that opens or closes all at once: a page may be brought up to date in between."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_barrier(browser: Browser, address: str, scheme: str) -> None:
    found = {}
    for width in (WIDE, NARROW):
        # axe runs inside the page: its own styles are not ours to allow
        context = browser.new_context(base_url=address, viewport=width, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
        page = context.new_page()
        for name, path in PAGES.items():
            page.goto(path)
            page.evaluate(OPEN, True)
            broken = [each for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS]
            found.update({f"{name} {each['id']}": each["nodes"][0]["html"] for each in broken})
            is_wider = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not is_wider, f"{name} scrolls sideways at {width['width']} pixels"
            page.evaluate(OPEN, False)
            picture(page, f"{name}-{scheme}-{'wide' if width is WIDE else 'narrow'}")
        context.close()
    assert found == {}


PICTURES = frozenset(
    {
        *(f"overview-{scheme}-{width}" for scheme in ("light", "dark") for width in ("wide", "narrow")),
        *("overview-problems", "topics-light-wide", "topic-dark-wide", "tail", "records-light-narrow", "reader"),
        *("group-light-wide", "group-dark-narrow", "reset", "letters", "topology-light-wide", "pipeline-light-wide"),
        *("topology-dark-narrow", "clients-dark-wide"),
    }
)
"""Pictures that docs/console.md shows."""


def picture(page: Page, name: str) -> None:
    """Write a picture, if they are asked for."""
    into = os.environ.get("MOLDAU_SCREENSHOTS")
    if into and name in PICTURES:
        Path(into).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(into) / f"{name}.png")
