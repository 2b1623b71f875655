"""Topics and the overview: what is shown, and what an editor may change."""

import json

from confluent_kafka import Producer

from tests.console.consoles import Asking


def test_the_overview_shows_brokers_and_no_problem(console: Asking) -> None:
    told = console.json("/")
    assert [each["is_there"] for each in told["brokers"]] == [True]
    assert told["problems"] == []
    assert "every partition has a leader" in console.page("/")


def test_a_topic_is_made_configured_grown_and_deleted_when_its_name_is_typed(console: Asking) -> None:
    made = console.post("/topics", {"name": "shop.orders", "partitions": "2", "config": "retention.ms=1000"})
    assert made == {"done": "topic shop.orders is made, with 2 partitions"}
    console.post("/topics/shop.orders/config", {"key": "cleanup.policy", "value": "compact"})
    console.post("/topics/shop.orders/partitions", {"partitions": "3"})
    told = console.json("/topics/shop.orders")
    own = {each["name"]: each["value"] for each in told["settings"] if each["is_own"]}
    assert own == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert [each["id"] for each in told["partitions"]] == [0, 1, 2]
    refused = console.post("/topics/shop.orders/delete", {"typed": "shop.order"}, 400)
    assert "type shop.orders" in refused["error"]
    console.post("/topics/shop.orders/delete", {"typed": "shop.orders"})
    assert "there is no topic" in console.json("/topics/shop.orders", 404)["error"]


def test_topics_are_a_tree_by_prefix(console: Asking, producer: Producer) -> None:
    for name in ("tree.a.one", "tree.a.two", "tree.b", "other"):
        producer.produce(name, b"x")
    producer.flush(10)
    console.look()
    rows = console.json("/topics")["rows"]
    tree = next(row for row in rows if row.get("prefix") == "tree.")
    assert tree["topics"] == 3
    assert [row.get("prefix") or row["name"] for row in console.json("/topics?prefix=tree.")["rows"]] == [
        "tree.a.",
        "tree.b",
    ]
    assert [row["name"] for row in console.json("/topics?q=TWO")["rows"]] == ["tree.a.two"]


def test_what_the_cluster_refuses_is_told_in_its_words_and_noted(console: Asking) -> None:
    console.post("/topics", {"name": "twice"})
    refused = console.post("/topics", {"name": "twice"}, 409)
    assert "exists already" in refused["error"]
    path = console.console.settings.audit_log
    assert path is not None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = [line["outcome"] for line in lines if line.get("topic") == "twice"]
    assert [outcome.split(":")[0] for outcome in outcomes] == ["begun", "done", "begun", "failed"]


def test_numbers_that_are_none_are_refused_in_one_line(console: Asking) -> None:
    assert "a whole number from 1" in console.post("/topics", {"name": "n", "partitions": "-3"}, 400)["error"]
    assert "name=value" in console.post("/topics", {"name": "n", "config": "oops"}, 400)["error"]


def test_a_form_of_a_browser_is_answered_with_a_page_that_says_what_was_done(console: Asking) -> None:
    fields = {"csrf": console.token(), "name": "by-form", "partitions": "1"}
    answer = console.client.post("/topics", data=fields, headers={"Origin": "http://localhost", "Accept": "text/html"})
    assert answer.status_code == 200
    assert "topic by-form is made" in answer.text
    assert "topic by-form is made" not in console.page(str(answer.url)), "the words are shown once"
