"""One comment of a report in a request, whoever else writes at the same time.

Two runs may post at once, and neither sees what the other is about to write. So each looks again
after it has written: the comment of the newest run stays, and every run decides alike. No look
tells whether an update overwrote that of a newer run, which came between our look and our update.
Hosts with versions refuse it; elsewhere that is the time of one request. A host that breaks off
an answer leaves open whether a comment was written; the key in it tells.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.render.comment import (
    HIDDEN,
    CommentMarker,
    comment_text,
    folded_text,
    read_marker,
    without_marker,
)
from providers.forge.fault import (
    BUSY,
    CONFLICT,
    LOGIN,
    MISSING,
    OTHER,
    PERMISSION,
    TOO_LONG,
    ForgeRefusal,
    UnsureOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from providers.forge.host import ForgeHost
    from providers.forge.protocol import Forge, ForgeComment

Behavior: TypeAlias = Literal["update", "new", "hide-and-new", "delete-and-new"]
Deed: TypeAlias = Literal["created", "updated", "unchanged", "superseded"]
UPDATE: Final = "update"
NEW: Final = "new"
HIDE: Final = "hide-and-new"
BEHAVIORS: Final[tuple[Behavior, ...]] = (
    "update",
    "new",
    "hide-and-new",
    "delete-and-new",
)
ROUNDS: Final = 5
FIRST_REDIRECT: Final = 300
# A host that refuses a size without saying which one it takes is offered half.
CUTS: Final = 4
SHORTEST: Final = 1000
SAID_LIMIT: Final = re.compile(r"(?:maximum is|than) ([\d,]{4,9}) characters")


class CommentDraft(Struct, frozen=True, kw_only=True):
    """What is to be posted. `report_url` leads to all of it, where some is left out."""

    body: str
    marker: CommentMarker
    behavior: Behavior
    report_url: str = ""

    def text(self, host: ForgeHost, limit: int) -> str:
        """Return the comment as a host shows it, of at most `limit` UTF-16 units."""
        return comment_text(
            self.body,
            self.marker,
            has_html=host.has_html,
            limit=limit,
            report_url=self.report_url,
        )


class CommentOutcome(Struct, frozen=True, kw_only=True):
    """What was done: with which comment, and with how many earlier ones.

    Of `superseded` the comment is that of a newer run, and nothing was written.
    """

    deed: Deed
    number: int
    url: str
    hidden: int = 0
    deleted: int = 0


class _OwnComment(NamedTuple):
    comment: ForgeComment
    marker: CommentMarker

    @property
    def rank(self) -> tuple[tuple[int, ...], int]:
        """The order of comments: a later run counts more, of the same run a later comment."""
        return self.marker.run, self.comment.number


class Publisher:
    """Posts a draft to a request."""

    def __init__(
        self, forge: Forge, host: ForgeHost, draft: CommentDraft
    ) -> None:
        self._forge = forge
        self._host = host
        self._draft = draft
        self._limit = host.characters
        self._account: str | None = None
        # Comments that only look like ours: their author is somebody else.
        self._foreign: set[int] = set()
        self._cuts = 0
        self._written: ForgeComment | None = None
        self._told = "others write to the comment at the same time"

    def publish(self) -> CommentOutcome:
        """Post the draft. Raises ForgeRefusal for what the host refuses."""
        written: Deed = "created"
        for _ in range(ROUNDS):
            own = self._own_comments()
            ours = [one for one in own if self._is_ours(one)]
            if ours:
                # It arrived, though the answer did not.
                return self._settled(ours[-1], own, written)
            newest = max(own, key=lambda one: one.rank, default=None)
            if newest is not None and self._is_superseded(newest):
                return _outcome("superseded", newest.comment)
            if newest is not None and self._says_the_same(newest):
                return self._settled(newest, own, "unchanged")
            if self._written is not None and written == "created":
                # A list may be older than what was written a moment ago.
                return _outcome(written, self._written)
            written = self._write(newest)
        if self._written is not None:
            return _outcome(written, self._written)
        raise ForgeRefusal(BUSY, 0, self._told)

    def _is_ours(self, own: _OwnComment) -> bool:
        return own.marker.key == self._draft.marker.key

    def _is_superseded(self, newest: _OwnComment) -> bool:
        """Whether a newer run has posted; who posts by hand has no run, and is the newest."""
        run = self._draft.marker.run
        return (
            self._draft.behavior != NEW
            and bool(run)
            and newest.marker.run > run
        )

    def _says_the_same(self, newest: _OwnComment) -> bool:
        """Whether a run was only run again: then nobody is to be notified."""
        marker = self._draft.marker
        # An attempt has another number, of the same run.
        is_same_run = newest.marker.run[:1] == marker.run[:1]
        if self._draft.behavior != UPDATE or not is_same_run:
            return False
        text = self._draft.text(self._host, self._limit)
        same_text = without_marker(newest.comment.text) == without_marker(text)
        return same_text and newest.marker.commit == marker.commit

    def _own_comments(self) -> list[_OwnComment]:
        """Return the comments with our tag that the token's account wrote, and that are shown."""
        own = [
            _OwnComment(comment, marker)
            for comment in self._forge.comments()
            if (marker := read_marker(comment.text)) is not None
            and marker.tag == self._draft.marker.tag
            and marker.state != HIDDEN
            and comment.number not in self._foreign
        ]
        if not own:
            return []
        if self._account is None:
            self._account = self._forge.account()
            # What is written rests on a list that is as new as it can be.
            return self._own_comments()
        own = [
            one
            for one in own
            # Anybody can copy a marker; nobody can write in another's name.
            if self._account in ("", one.comment.author)
        ]
        if len(own) > 1:
            shown = self._forge.shown([one.comment for one in own])
            numbers = {comment.number for comment in shown}
            own = [one for one in own if one.comment.number in numbers]
        return sorted(own, key=lambda one: one.comment.number)

    def _write(self, newest: _OwnComment | None) -> Deed:
        """Write the draft, and return what that was; the next look says whether it stands."""
        text = self._draft.text(self._host, self._limit)
        is_update = newest is not None and self._draft.behavior == UPDATE
        try:
            if newest is not None and is_update:
                self._forge.update(newest.comment, text)
                self._written = newest.comment
            else:
                self._written = self._forge.create(text)
        except UnsureOutcome as error:
            self._told = str(error)
        except ForgeRefusal as error:
            self._learn(error, newest if is_update else None)
        return "updated" if is_update else "created"

    def _learn(self, error: ForgeRefusal, target: _OwnComment | None) -> None:
        """Take from a refusal what helps the next attempt. Raises what nothing helps."""
        if error.meaning == OTHER and 0 < error.status < FIRST_REDIRECT:
            # It was done, and what was told of it is no JSON.
            return
        if error.meaning == TOO_LONG:
            self._shorten(error)
        elif target is not None and self._is_foreign(error):
            self._foreign.add(target.comment.number)
        elif target is None or error.meaning not in (MISSING, CONFLICT):
            raise error

    def _is_foreign(self, error: ForgeRefusal) -> bool:
        """Whether a comment is somebody else's, where nobody can say whose a token is.

        Data Center says with 401 too that somebody may not change a comment.
        """
        return not self._account and error.meaning in (PERMISSION, LOGIN)

    def _shorten(self, error: ForgeRefusal) -> None:
        said = SAID_LIMIT.search(error.told_text)
        limit = int(said[1].replace(",", "")) if said else self._limit
        self._cuts += 1
        self._limit = limit if limit < self._limit else self._limit // 2
        if self._cuts > CUTS or self._limit < SHORTEST:
            raise error

    def _settled(
        self, ours: _OwnComment, own: Sequence[_OwnComment], deed: Deed
    ) -> CommentOutcome:
        """Return the outcome, with one comment left: that of the newest run."""
        if self._draft.behavior == NEW:
            return _outcome(deed, ours.comment)
        winner = max(own, key=lambda one: one.rank)
        if not self._draft.marker.run:
            winner = ours
        losers = [one for one in own if one is not winner]
        hidden = deleted = 0
        if self._draft.behavior == HIDE:
            hidden = self._hide(losers)
        else:
            deleted = self._delete(losers)
        return replace(
            _outcome(deed if winner is ours else "superseded", winner.comment),
            hidden=hidden,
            deleted=deleted,
        )

    def _hide(self, losers: Iterable[_OwnComment]) -> int:
        count = 0
        for comment, marker in losers:
            hidden_marker = replace(marker, state=HIDDEN)
            folded = folded_text(comment.text, hidden_marker, self._limit)
            with self._unless_gone():
                self._forge.hide(comment, folded)
                count += 1
        return count

    def _delete(self, losers: Iterable[_OwnComment]) -> int:
        count = 0
        for comment, _ in losers:
            with self._unless_gone():
                self._forge.delete(comment)
                count += 1
        return count

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Let a comment be that another run has deleted or changed, or that is not ours."""
        try:
            yield
        except ForgeRefusal as error:
            is_gone = error.meaning in (MISSING, CONFLICT)
            if not is_gone and not self._is_foreign(error):
                raise


def _outcome(deed: Deed, comment: ForgeComment) -> CommentOutcome:
    return CommentOutcome(deed=deed, number=comment.number, url=comment.url)


@contextmanager
def expected_shapes() -> Iterator[None]:
    """Turn answers of another shape than documented into a refusal."""
    try:
        yield
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        # What is in the answer is not shown: it may be anything.
        told = f"the answer has another shape than documented: {type(error).__name__}"
        raise ForgeRefusal(OTHER, 0, told) from error
