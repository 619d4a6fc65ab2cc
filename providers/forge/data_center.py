"""Comments of pull requests on Bitbucket Data Center, also below a path.

Facts: Bitbucket Data Center REST API reference (pull requests). A comment has a version: who
changes an older one than there is gets told so. The account of a token is named in a header of
every answer; the token of a repository has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.forge.protocol import ForgeComment, RequestHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.forge.transport import Transport

PAGE_SIZE: Final = 100
MOST_PAGES: Final = 200
COMMENTED: Final = "COMMENTED"
DELETED: Final = "DELETED"
ACCOUNT_HEADER: Final = "X-AUSERNAME"


class DataCenterRequest:
    """The comments of a pull request."""

    def __init__(
        self, transport: Transport, repository: str, request: int
    ) -> None:
        self._transport = transport
        project, _, name = quote(repository).partition("/")
        self._path = f"/projects/{project}/repos/{name}/pull-requests/{request}"
        self._resolved: set[int] = set()

    def account(self) -> str:
        """Return the name of the token's account; empty for the token of a repository."""
        answer = self._transport.send("GET", self._path)
        return str(answer.headers.get(ACCOUNT_HEADER, ""))

    def head(self) -> RequestHead:
        """Return the newest commit, and the repository of its branch."""
        document = self._transport.send("GET", self._path).document()
        source = document["fromRef"]
        repository = source["repository"]
        name = f"{repository['project']['key']}/{repository['slug']}"
        return RequestHead(commit=source["latestCommit"], repository=name)

    def comments(self) -> Iterator[ForgeComment]:
        """Yield the comments on the whole request: a list of what happened has them."""
        seen: set[int] = set()
        start = 0
        for _ in range(MOST_PAGES):
            path = f"{self._path}/activities?limit={PAGE_SIZE}&start={start}"
            page = self._transport.send("GET", path).document()
            for row in page["values"]:
                comment = self._of_activity(row)
                # A comment that was edited is in the list again.
                if comment is not None and comment.number not in seen:
                    seen.add(comment.number)
                    yield comment
            if page["isLastPage"]:
                return
            start = page["nextPageStart"]

    def _of_activity(self, row: Any) -> ForgeComment | None:
        """Return the comment of an activity; none for other ones, and for comments on lines."""
        if row["action"] != COMMENTED or row.get("commentAnchor"):
            return None
        if row.get("commentAction") == DELETED:
            return None
        comment = row["comment"]
        if comment.get("threadResolved"):
            self._resolved.add(comment["id"])
        return self._comment(comment)

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return those whose thread is not resolved."""
        return [
            comment
            for comment in comments
            if comment.number not in self._resolved
        ]

    def create(self, text: str) -> ForgeComment:
        """Write a comment on the whole request."""
        answer = self._transport.send(
            "POST", f"{self._path}/comments", {"text": text}
        )
        return self._comment(answer.document())

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a comment, if it is that which was read."""
        document = {"text": text, "version": int(comment.handle)}
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("PUT", path, document)

    def delete(self, comment: ForgeComment) -> None:
        """Delete a comment, if it is that which was read."""
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("DELETE", f"{path}?version={comment.handle}")

    def hide(self, comment: ForgeComment, folded: str) -> None:  # noqa: ARG002 - HTML is not shown
        """Resolve the thread of a comment."""
        document = {"threadResolved": True, "version": int(comment.handle)}
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("PUT", path, document)

    def _comment(self, row: Any) -> ForgeComment:
        base = self._transport.api.partition("/rest/")[0]
        return ForgeComment(
            number=row["id"],
            text=row["text"],
            handle=str(row["version"]),
            author=row["author"]["name"],
            url=f"{base}{self._path}/overview?commentId={row['id']}",
        )
