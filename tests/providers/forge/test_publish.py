"""One comment of a report, at every code host, whatever happens between two requests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from planner.render.comment import read_marker, without_marker
from providers.forge.fault import ForgeRefusal
from providers.forge.publish import BEHAVIORS, Behavior
from tests.providers.forge.conftest import QuickClock, publisher
from tests.providers.forge.hosts import STRANGER, Asked, FakeHost, Fault, Reply

pytestmark = pytest.mark.enable_socket


def reports(host: FakeHost, tag: str = "cost") -> list[str]:
    """What the comments with a tag say that are shown, without folds."""
    found = []
    for text in host.texts():
        marker = read_marker(text)
        if marker is not None and marker.tag == tag and not marker.state:
            found.append(without_marker(text))
    return found


def marked(run: str, text: str = "old", tag: str = "cost") -> str:
    return f"<!-- tonnage:comment:v1 tag={tag} run={run} id=zz -->\n\n{text}"


def test_the_first_report_is_posted_and_the_next_one_replaces_it(
    host: FakeHost, clock: QuickClock
) -> None:
    host.add("a remark of a person", STRANGER)
    first = publisher(host, clock, "one").publish()
    second = publisher(host, clock, "two", run=(6, 1), key="b2").publish()
    assert (first.deed, second.deed) == ("created", "updated")
    assert first.number == second.number
    assert second.url.startswith(("http://", "https://"))
    assert reports(host) == ["two"]
    assert "a remark of a person" in host.texts()


def test_reports_of_one_request_are_told_apart_by_their_tag(
    host: FakeHost, clock: QuickClock
) -> None:
    publisher(host, clock, "cost").publish()
    publisher(host, clock, "policy", tag="policy", key="b2").publish()
    publisher(host, clock, "cost 2", run=(6, 1), key="c3").publish()
    assert reports(host) == ["cost 2"]
    assert reports(host, "policy") == ["policy"]


def test_each_behavior_leaves_what_it_says(
    host: FakeHost, clock: QuickClock
) -> None:
    left = {}
    for tag in BEHAVIORS:
        for number in (1, 2, 3):
            publisher(
                host,
                clock,
                f"text {number}",
                run=(number, 1),
                behavior=tag,
                tag=tag,
                key=f"k{number}",
            ).publish()
        left[tag] = reports(host, tag)
    assert left == {
        "update": ["text 3"],
        "new": ["text 1", "text 2", "text 3"],
        "hide-and-new": ["text 3"],
        "delete-and-new": ["text 3"],
    }
    # What is hidden is still there, for those who open it.
    hidden = [
        comment["text"]
        for comment in host.comments.values()
        if "tag=hide-and-new" in comment["text"]
    ]
    assert len(hidden) == 3
    assert all(f"text {number}" in "".join(hidden) for number in (1, 2))


def test_a_report_is_found_behind_many_pages_of_comments(
    host: FakeHost, clock: QuickClock
) -> None:
    for number in range(120):
        host.add(f"remark {number}", STRANGER)
    publisher(host, clock, "one").publish()
    for number in range(120):
        host.add(f"answer {number}", STRANGER)
    outcome = publisher(host, clock, "two", run=(6, 1), key="b2").publish()
    assert outcome.deed == "updated"
    assert reports(host) == ["two"]
    assert len(host.comments) == 241


def test_a_run_that_is_run_again_writes_nothing(
    host: FakeHost, clock: QuickClock
) -> None:
    publisher(host, clock, "one").publish()
    before = len(host.writes())
    outcome = publisher(host, clock, "one", run=(5, 2), key="b2").publish()
    assert outcome.deed == "unchanged"
    assert len(host.writes()) == before


def test_an_older_run_that_comes_late_writes_nothing(
    host: FakeHost, clock: QuickClock
) -> None:
    publisher(host, clock, "new", run=(9, 1)).publish()
    before = len(host.writes())
    for behavior in ("update", "hide-and-new", "delete-and-new"):
        late = publisher(
            host, clock, "old", run=(8, 3), behavior=behavior, key="b2"
        )
        assert late.publish().deed == "superseded"
    assert len(host.writes()) == before
    assert reports(host) == ["new"]


def test_who_posts_by_hand_is_the_newest(
    host: FakeHost, clock: QuickClock
) -> None:
    publisher(host, clock, "ci", run=(9, 1)).publish()
    assert publisher(host, clock, "hand", run=(), key="b2").publish().deed == (
        "updated"
    )
    publisher(host, clock, "ci 2", run=(10, 1), key="c3").publish()
    assert reports(host) == ["ci 2"]


def test_a_marker_that_somebody_else_copied_is_not_touched(
    host: FakeHost, clock: QuickClock
) -> None:
    """Neither is it updated or deleted, nor does its number of a run keep ours out."""
    host.add(marked("999999999.1", "forged"), STRANGER)
    for behavior in BEHAVIORS:
        publisher(
            host, clock, "ours", behavior=behavior, key=f"k-{behavior}"
        ).publish()
    assert marked("999999999.1", "forged") in host.texts()
    assert "ours" in reports(host)


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_two_runs_at_once_leave_the_report_of_the_newer_one(
    host: FakeHost, behavior: Behavior
) -> None:
    """Real threads, at every code host; whichever of them is first."""
    runs = {5: "older", 6: "newer", 7: "newest"}
    threads = [
        threading.Thread(
            target=publisher(
                host,
                QuickClock(),
                text,
                run=(run, 1),
                behavior=behavior,
                key=f"k{run}",
            ).publish
        )
        for run, text in runs.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = reports(host)
    if behavior == "new":
        assert sorted(found) == sorted(runs.values())
    elif behavior == "update" and host.service != "bitbucket-data-center":
        # These hosts have no update on a condition: who has looked a moment before the newest run
        # has written may write over it, as in the brute force below. One report stays.
        assert len(found) == 1
        assert found[0] in runs.values()
    else:
        assert found == ["newest"]


@pytest.mark.parametrize("first", [0, 1], ids=["older", "newer"])
@pytest.mark.parametrize("has_earlier", [False, True], ids=["none", "earlier"])
def test_a_run_in_between_any_two_requests_changes_nothing(
    host: FakeHost, first: int, *, has_earlier: bool
) -> None:
    """Brute force over the moments at which a whole other run may take place."""
    runs = ((5, 1), (6, 1))
    for step in range(9):
        host.comments.clear()
        if has_earlier:
            host.add(marked("1.1"))
        asked = itertools.count()
        moment: list[str] = []

        def between(
            request: Asked,
            step: int = step,
            asked: Iterator[int] = asked,
            moment: list[str] = moment,
        ) -> None:
            if next(asked) == step:
                moment.append(request.method)
                host.meanwhile = lambda _: None
                other = publisher(
                    host, QuickClock(), "other", run=runs[1 - first], key="b2"
                )
                # The host answers one at a time, and this one waits for the other run.
                host.lock.release()
                other.publish()
                host.lock.acquire()

        host.meanwhile = between
        publisher(host, QuickClock(), "ours", run=runs[first]).publish()
        if not moment:
            break
        found = reports(host)
        assert len(found) == 1
        is_seen = moment[0] not in ("PUT", "PATCH")
        if is_seen or host.service == "bitbucket-data-center":
            assert found == ["ours" if first else "other"], (step, moment)
    assert step >= 3


def test_a_comment_that_is_deleted_before_the_update_is_posted_again(
    host: FakeHost, clock: QuickClock
) -> None:
    publisher(host, clock, "one").publish()

    def delete(asked: Asked) -> None:
        if asked.method in ("PATCH", "PUT"):
            host.comments.clear()

    host.meanwhile = delete
    outcome = publisher(host, clock, "two", run=(6, 1), key="b2").publish()
    assert outcome.deed == "created"
    assert reports(host) == ["two"]


POST_PATHS = {
    "github": "/issues/12/comments",
    "gitlab": "/notes",
    "bitbucket-cloud": "/comments",
    "bitbucket-data-center": "/comments",
    "azure-devops": "/threads",
}


@pytest.mark.parametrize("is_after", [True, False], ids=["done", "not-done"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(502, text="<html>Bad Gateway</html>"),
        Reply(504, {"message": "timeout"}),
        Reply(201, text='{"id": 1', is_cut=True),
    ],
    ids=["502", "504", "cut"],
)
def test_an_answer_that_breaks_off_leaves_one_comment(
    host: FakeHost, clock: QuickClock, reply: Reply, *, is_after: bool
) -> None:
    """Whether or not the comment was written before it broke off."""
    path = POST_PATHS[host.service]
    host.faults = [Fault("POST", reply, is_after, path)]
    assert publisher(host, clock, "one").publish().deed == "created"
    assert reports(host) == ["one"]


def test_a_host_that_never_says_whether_it_wrote_is_given_up(
    host: FakeHost, clock: QuickClock
) -> None:
    """With pauses between the attempts, and what it said as the cause."""
    path = POST_PATHS[host.service]
    broken = Reply(502, {"message": "upstream"})
    host.faults = [Fault("POST", broken, path=path) for _ in range(99)]
    with pytest.raises(ForgeRefusal, match="upstream"):
        publisher(host, clock).publish()
    assert host.comments == {}
    assert len(clock.pauses) == host.writes().count("POST") == 5


def test_a_body_beyond_the_limit_of_an_instance_is_cut_to_what_it_takes(
    host: FakeHost, clock: QuickClock
) -> None:
    """Own instances may take less than their makers say."""
    host.limit = 5000
    sections = [f"## part {n}\n\n{'words ' * 100}" for n in range(100)]
    publisher(host, clock, "\n\n".join(["# all", *sections])).publish()
    (report,) = reports(host)
    assert report.startswith("# all\n\n## part 0")
    assert len(report) <= host.limit
    assert "Left out: " in report


def test_what_no_size_pleases_is_an_error(
    host: FakeHost, clock: QuickClock
) -> None:
    host.limit = 10
    with pytest.raises(ForgeRefusal, match="10") as refused:
        publisher(host, clock, "word " * 9000).publish()
    assert refused.value.meaning == "too-long"


def test_without_an_account_what_may_not_be_changed_is_somebody_elses(
    clock: QuickClock,
) -> None:
    """Tokens of a repository belong to nobody: a refusal tells whose a comment is."""
    from tests.providers.forge.hosts import HOSTS, serving

    for service in ("bitbucket-cloud", "bitbucket-data-center"):
        host = HOSTS[service]()
        host.account = ""
        host.add(marked("1.1", "forged"), STRANGER)
        with serving(host):
            publisher(host, clock, "one").publish()
            publisher(host, clock, "two", run=(6, 1), key="b2").publish()
        assert sorted(reports(host)) == ["forged", "two"]


def test_earlier_comments_that_vanish_meanwhile_do_not_matter(
    host: FakeHost, clock: QuickClock
) -> None:
    behaviors: tuple[Behavior, ...] = ("hide-and-new", "delete-and-new")
    for behavior in behaviors:
        host.comments.clear()
        old = host.add(marked("1.1"))

        def vanish(asked: Asked, number: int = old) -> None:
            if asked.method == "POST" and len(host.comments) > 1:
                host.comments.pop(number, None)

        host.meanwhile = vanish
        publisher(
            host, clock, "one", behavior=behavior, key=f"k-{behavior}"
        ).publish()
        assert reports(host)[-1] == "one"


def test_azure_threads_never_wait_for_a_person(clock: QuickClock) -> None:
    """An active thread may block the merge."""
    from tests.providers.forge.hosts import HOSTS, serving

    host = HOSTS["azure-devops"]()
    with serving(host):
        publisher(host, clock).publish()
    assert [c["status"] for c in host.comments.values()] == ["closed"]


def test_answers_of_another_shape_are_told_as_such(
    host: FakeHost, clock: QuickClock
) -> None:
    from providers.forge.publish import expected_shapes

    documents: tuple[Any, ...] = (
        [{}],
        {"values": [{}]},
        {"value": [{}]},
        None,
        "text",
    )
    for document in documents:
        host.faults = [Fault("GET", Reply(200, document)) for _ in range(9)]
        try:
            with expected_shapes():
                publisher(host, clock, "one").publish()
        except ForgeRefusal as error:
            assert error.meaning == "other"
