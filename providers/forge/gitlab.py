"""Notes of merge requests on GitLab, also on an instance below a path.

Facts: GitLab REST API reference (notes, merge requests, users, pagination). A note cannot be
hidden: it is folded. A thread could be resolved, but an unresolved one may block the merge.
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


class GitLabRequest:
    """The notes of a merge request."""

    def __init__(
        self, transport: Transport, repository: str, request: int
    ) -> None:
        self._transport = transport
        project = quote(repository, safe="")
        self._path = f"/projects/{project}/merge_requests/{request}"
        self._web_url = ""

    def account(self) -> str:
        """Return the number of the token's account; that of a project token is a bot."""
        return str(self._transport.send("GET", "/user").document()["id"])

    def head(self) -> RequestHead:
        """Return the newest commit; the project of its branch is a number alone."""
        document = self._transport.send("GET", self._path).document()
        return RequestHead(commit=document["sha"])

    def comments(self) -> Iterator[ForgeComment]:
        """Yield the notes, the newest first, without those that GitLab writes itself."""
        base = f"{self._path}/notes?order_by=created_at&sort=desc&per_page={PAGE_SIZE}"
        page = "1"
        for _ in range(MOST_PAGES):
            answer = self._transport.send("GET", f"{base}&page={page}")
            rows = answer.document()
            yield from (self._comment(row) for row in rows if not row["system"])
            page = answer.headers.get("X-Next-Page", "")
            if not page:
                return

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return all: those that are folded say so in their first line."""
        return list(comments)

    def create(self, text: str) -> ForgeComment:
        """Write a note that nobody has to resolve."""
        path = f"{self._path}/notes"
        answer = self._transport.send("POST", path, {"body": text})
        return self._comment(answer.document())

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a note."""
        path = f"{self._path}/notes/{comment.number}"
        self._transport.send("PUT", path, {"body": text})

    def delete(self, comment: ForgeComment) -> None:
        """Delete a note."""
        self._transport.send("DELETE", f"{self._path}/notes/{comment.number}")

    def hide(self, comment: ForgeComment, folded: str) -> None:
        """Fold a note."""
        self.update(comment, folded)

    def _comment(self, row: Any) -> ForgeComment:
        return ForgeComment(
            number=row["id"],
            text=row["body"],
            author=str(row["author"]["id"]),
            url=self._note_url(row["id"]),
        )

    def _note_url(self, number: int) -> str:
        """Return where people see a note: a note itself does not say."""
        if not self._web_url:
            document = self._transport.send("GET", self._path).document()
            self._web_url = document["web_url"]
        return f"{self._web_url}#note_{number}"
