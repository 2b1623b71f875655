"""Dead letters: topics that have some, their reasons, and sending them back."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from moldau.console.cluster.clients import CALL_S
from moldau.console.cluster.state import Snapshot, TopicState
from moldau.console.failures import ConsoleError
from moldau.console.records import letters as kept
from moldau.console.records.letters import Letter, Pile
from moldau.console.web.console import Console, checked_form, console_of, sliced, text, whole
from moldau.console.web.topics import found_topic
from moldau.console.web.words import counted

TOPICS_LOOKED_AT_MAX = 100
RATE_MAX = 100_000


async def letters(request: Request) -> Response:
    """Serve `/letters`: topics whose newest records are dead letters."""
    console = console_of(request)
    snapshot = console.sampler.snapshot
    found = await letter_topics(console, snapshot)
    known = console.letter_topics
    data = {
        "title": "Dead letters",
        "rows": [{"topic": name, "offset_range": snapshot.topics[name].offset_range} for name in found],
        "unread": sum(each.name not in known for each in snapshot.topics.values() if _may_have_some(each)),
    }
    return console.page(request, "letters.html", data)


def _may_have_some(topic: TopicState) -> bool:
    return not topic.is_internal and topic.offset_range > 0


async def letter_topics(console: Console, snapshot: Snapshot) -> list[str]:
    """Names of topics with dead letters. A topic is looked at again when it has grown."""
    known: dict[str, tuple[int, bool]] = console.letter_topics
    for name in known.keys() - snapshot.topics.keys():
        del known[name]
    asked: dict[str, dict[int, int]] = {}
    for topic in snapshot.topics.values():
        ends = {each.id: each.end for each in topic.partitions if each.end and each.end > (each.start or 0)}
        is_old = known.get(topic.name, (-1, False))[0] == topic.end_sum
        if ends and _may_have_some(topic) and not is_old and len(asked) < TOPICS_LOOKED_AT_MAX:
            asked[topic.name] = dict(list(ends.items())[:3])
    if asked:
        told = await console.clients.run(lambda: kept.newest_is_letter(console.clients, asked))
        for name, is_letter in told.items():
            known[name] = (snapshot.topics[name].end_sum, is_letter)
    return sorted(name for name, (_, is_letter) in known.items() if is_letter)


async def letters_of(request: Request) -> Response:
    """Serve `/letters/TOPIC`: its letters by reason."""
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    others = _others(console, topic.name)
    pile = await console.clients.run(lambda: kept.pile(console.clients, topic.name, len(topic.partitions), others))
    reason = request.query_params.get("reason")
    chosen = [each for each in pile.letters if reason is None or each.reason == reason]
    part = sliced(sorted(chosen, key=lambda each: -each.timestamp_ms), request.query_params.get("page", "1"))
    data = {
        "title": f"Dead letters in {topic.name}",
        "topic": topic.name,
        "group": kept.group_of(topic.name, pile.owner),
        "waiting": len(pile.letters),
        "is_whole": pile.is_whole,
        "reason": reason,
        "reasons": [{"reason": words, "count": count} for words, count in pile.reasons.most_common(50)],
        "letters": [_row(each) for each in part.items],
        "page": part.page,
        "pages": part.pages,
        "total": part.total,
    }
    return console.page(request, "letters_of.html", data)


def _row(letter: Letter) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "origin": letter.origin,
        "reason": letter.reason,
        "attempts": letter.attempts,
    }


async def redrive(request: Request) -> Response:
    """Serve POST `/letters/TOPIC/redrive`: one, those of a reason, or all."""
    console = console_of(request)
    topic = found_topic(console.sampler.snapshot, request.path_params["topic"])
    form = await checked_form(request)
    one, reason, rate = text(form, "letter"), form.get("reason"), text(form, "rate")
    per_s = whole(rate, "the rate", 1, RATE_MAX) if rate else None

    async def sent() -> str:
        # the redrive itself ends in time, and says how far it came
        outcome = await console.clients.run(
            lambda: _redriven(console, topic, one, None if reason is None else str(reason), per_s),
            kept.REDRIVE_S_MAX + CALL_S,
        )
        return _said(outcome)

    facts = {"topic": topic.name, "letter": one, "reason": None if reason is None else str(reason)[:500], "rate": per_s}
    path = f"/letters/{quote(topic.name, safe='')}"
    return await console.change(request, "redrive", facts, sent, path)


def _said(outcome: kept.Outcome) -> str:
    said = [f"{counted(outcome.sent, 'letter was', 'letters were')} sent back"]
    if outcome.kept:
        said.append(f"{counted(outcome.kept, 'other is', 'others are')} at the end of the topic now")
    if outcome.stuck:
        said.append(f"{outcome.stuck} of them cannot go back, as their topic is not there")
    if outcome.foreign:
        foreign = counted(outcome.foreign, "record that is no letter was", "records that are no letters were")
        said.append(f"{foreign} left")
    if not outcome.is_whole:
        said.append("the time is up: redrive again for the rest")
    return "; ".join(said)


def _others(console: Console, topic: str) -> list[str]:
    """Groups of redrives that have a position in the topic."""
    groups = console.sampler.snapshot.groups.values()
    return [each.id for each in groups if each.id.endswith(kept.SUFFIX) and any(name == topic for name, _ in each.lags)]


def _redriven(console: Console, topic: TopicState, one: str, reason: str | None, per_s: float | None) -> kept.Outcome:
    count, others = len(topic.partitions), _others(console, topic.name)
    known = {each.name for each in console.sampler.snapshot.topics.values() if not each.is_internal}
    if one:
        partition, _, offset = one.partition(":")
        number, at = whole(partition, "a partition", 0, count - 1), whole(offset, "an offset")
        takes, only_to = (lambda each: each.offset == at), {number: at + 1}
        return kept.redrive(console.clients, topic.name, count, takes, known, per_s, only_to, others)
    pile: Pile = kept.pile(console.clients, topic.name, count, others)
    if not pile.letters:
        raise ConsoleError("there is nothing to send back", 409)
    takes = lambda each: reason is None or each.reason == reason  # noqa: E731
    return kept.redrive(console.clients, topic.name, count, takes, known, per_s, None, others)
