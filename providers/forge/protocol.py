"""What every code host offers: the comments of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ForgeComment(Struct, frozen=True, kw_only=True):
    """A comment of a request.

    number  of the comment; a later one has a greater number
    handle  by which its host finds it besides, where a number is not enough
    author  whoever wrote it, as the host names accounts
    url     where people see it
    """

    number: int
    text: str
    handle: str = ""
    author: str = ""
    url: str = ""


class RequestHead(Struct, frozen=True, kw_only=True):
    """The newest commit of a request, and the repository that it is in; empty if unknown."""

    commit: str
    repository: str = ""


class Forge(Protocol):
    """The comments of one pull request or merge request.

    Every method raises ForgeRefusal for what the host refuses. For a comment that is gone its
    meaning is `missing`.
    """

    def account(self) -> str:
        """Return whom the token belongs to, as `ForgeComment.author`; empty if it cannot be told.

        Where it cannot, nobody but an author may change a comment.
        """

    def head(self) -> RequestHead:
        """Return the newest commit of the request."""

    def comments(self) -> Iterator[ForgeComment]:
        """Yield all comments that are not deleted, page by page."""

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return those of some comments that are not hidden."""

    def create(self, text: str) -> ForgeComment:
        """Write a comment. Raises UnsureOutcome when it may have been written."""

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a comment."""

    def delete(self, comment: ForgeComment) -> None:
        """Delete a comment."""

    def hide(self, comment: ForgeComment, folded: str) -> None:
        """Let a comment be seen by those who ask for it alone.

        `folded` is its text as a fold, for hosts that cannot hide comments.
        """
