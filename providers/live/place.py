"""Asks clouds what an account may have, several regions and questions at once."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from planner.market.capacity import LIMITED_PURCHASES
from planner.market.live import Answer, LiveFacts, PlaceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from providers.live.market import MarketModule
    from providers.live.question import AccountModule

# An answer of another shape than the one that is documented.
MISSHAPEN: Final = (KeyError, ValueError, TypeError, AttributeError, IndexError)
CALLER: Final = "caller"
# A reason is read at once.
REASON_CHARACTERS: Final = 300


class Place(NamedTuple):
    """A region, and the machine types of interest in it."""

    cloud: str
    region: str
    machine_types: tuple[str, ...]


class Question(NamedTuple):
    """What is asked, of whom, and how the answer is found."""

    place: Place
    request: str
    find: Callable[[], Any]


def ask_places(
    places: Sequence[Place], known: LiveFacts, deadline_s: float
) -> LiveFacts:
    """Return what is known, and what clouds answer about more regions.

    Clouds are asked at the same time, and each of its regions and questions too. What is not
    answered after `deadline_s` seconds is unknown. So is all but public prices of a cloud that
    nobody is signed in to.
    """
    end_s = time.monotonic() + deadline_s
    callers = dict(known.callers)
    first_places = {
        place.cloud: place for place in places if place.cloud not in callers
    }
    logins = [
        Question(place, CALLER, lambda place=place: _signed_in(place))  # type: ignore[misc]
        for place in first_places.values()
    ]
    for question, answer in zip(logins, _answers(logins, end_s), strict=True):
        callers[question.place.cloud] = answer
    questions = [
        question
        for place in places
        for question in _questions(place)
        if callers[place.cloud].state == "value"
        or question.request in _public_questions(place.cloud)
    ]
    found = {
        (question.place, question.request): answer
        for question, answer in zip(
            questions, _answers(questions, end_s), strict=True
        )
    }
    return LiveFacts(
        callers=callers,
        places=(
            *known.places,
            *(
                _place_facts(place, found, callers[place.cloud])
                for place in places
            ),
        ),
    )


def _signed_in(place: Place) -> str:
    return _account(place.cloud).signed_in(place.region)


def _account(cloud: str) -> AccountModule:
    module: AccountModule = import_module(f"providers.{cloud}.account")
    return module


def _market(cloud: str) -> MarketModule:
    module: MarketModule = import_module(f"providers.{cloud}.market")
    return module


def _public_questions(cloud: str) -> tuple[str, ...]:
    """Return what a cloud tells everybody."""
    try:
        return _market(cloud).PUBLIC_QUESTIONS
    except ModuleNotFoundError:
        return ()


def _questions(place: Place) -> list[Question]:
    """Return all that is asked about a region, by the name of its field in PlaceFacts."""
    cloud, region, types = place
    return [
        *(
            Question(
                place,
                f"quotas {purchase}",
                lambda purchase=purchase: tuple(  # type: ignore[misc]
                    _account(cloud).quotas(region, types, purchase)
                ),
            )
            for purchase in LIMITED_PURCHASES
        ),
        Question(
            place,
            "zones",
            lambda: {
                name: tuple(sorted(zones))
                for name, zones in _account(cloud)
                .offered_zones(region, types)
                .items()
            },
        ),
        Question(
            place,
            "on_demand_usd",
            lambda: _market(cloud).on_demand_prices(region, types),
        ),
        Question(
            place,
            "spot_usd",
            lambda: _market(cloud).spot_prices(region, types),
        ),
        Question(
            place,
            "reservations",
            lambda: tuple(_market(cloud).reservations(region)),
        ),
    ]


def _place_facts(
    place: Place,
    found: Mapping[tuple[Place, str], Answer[Any]],
    caller: Answer[str],
) -> PlaceFacts:
    """Return the answers about a region; where nobody is signed in, why they are unknown."""

    def answer(request: str) -> Answer[Any]:
        given = found.get((place, request))
        return given or Answer(
            state="unknown",
            reason=caller.reason,
            as_of=caller.as_of,
            request=request,
        )

    return PlaceFacts(
        cloud=place.cloud,
        region=place.region,
        quotas={
            purchase: answer(f"quotas {purchase}")
            for purchase in LIMITED_PURCHASES
        },
        zones=answer("zones"),
        on_demand_usd=answer("on_demand_usd"),
        spot_usd=answer("spot_usd"),
        reservations=answer("reservations"),
    )


def _answers(questions: Sequence[Question], end_s: float) -> list[Answer[Any]]:
    """Ask all questions at once; return what is answered until a monotonic time.

    The threads are daemons: a cloud that never answers keeps no command from ending.
    """
    given: dict[int, Answer[Any]] = {}

    def ask(number: int, question: Question) -> None:
        given[number] = _answer(question)

    threads = [
        Thread(target=ask, args=(number, question), daemon=True)
        for number, question in enumerate(questions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    return [
        given.get(number)
        or Answer(
            state="unknown",
            reason="no answer in time",
            as_of=_now(),
            request=question.request,
        )
        for number, question in enumerate(questions)
    ]


def _answer(question: Question) -> Answer[Any]:
    """Return what a cloud answers to one question, whatever it is."""
    as_of = _now()
    state, value, reason = "value", None, ""
    try:
        value = question.find()
    except MISSHAPEN as error:
        state, reason = "unknown", f"an answer of another shape: {error!r}"
    except PermissionError as error:
        # Without a login nobody knows which rights there are.
        state = "unknown" if question.request == CALLER else "denied"
        reason = str(error)
    except (FileNotFoundError, LookupError) as error:
        state, reason = "none", str(error)
    except ModuleNotFoundError as error:
        state = "unknown"
        reason = f"{error}: pip install 'tonnage[{question.place.cloud}]'"
    except OSError as error:
        state, reason = "unknown", str(error)
    return Answer(
        state=state,  # type: ignore[arg-type]
        value=value,
        reason=" ".join(reason.split())[:REASON_CHARACTERS],
        as_of=as_of,
        request=question.request,
    )


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
