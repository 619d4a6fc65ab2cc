"""Threads of pull requests on Azure DevOps Services and Azure DevOps Server.

Facts: Azure DevOps REST API 6.0 reference (pull request threads and their comments), which Azure
DevOps Server 2020 has too. A thread is closed from the start: an active one may block the merge. A
comment cannot be hidden: it is folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.forge.protocol import ForgeComment, RequestHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.forge.transport import Transport

VERSION: Final = "api-version=6.0"
TEXT_COMMENT: Final = "text"
CLOSED_THREAD: Final = "closed"
FIRST_COMMENT: Final = 1


class AzureDevOpsRequest:
    """The threads of a pull request."""

    def __init__(
        self, transport: Transport, repository: str, request: int
    ) -> None:
        self._transport = transport
        project, _, name = repository.partition("/")
        self._path = (
            f"/{quote(project)}/_apis/git/repositories/{quote(name)}"
            f"/pullRequests/{request}"
        )
        self._web_path = f"/{quote(project)}/_git/{quote(name)}/pullrequest"
        self._request = request

    def account(self) -> str:
        """Return the number of the token's account; that of a job is a build service."""
        answer = self._transport.send("GET", "/_apis/connectionData")
        return str(answer.document()["authenticatedUser"]["id"])

    def head(self) -> RequestHead:
        """Return the newest commit of the source branch."""
        path = f"{self._path}?{VERSION}"
        document = self._transport.send("GET", path).document()
        return RequestHead(commit=document["lastMergeSourceCommit"]["commitId"])

    def comments(self) -> Iterator[ForgeComment]:
        """Yield the first comment of each thread; all threads come in one answer."""
        path = f"{self._path}/threads?{VERSION}"
        document = self._transport.send("GET", path).document()
        for thread in document["value"]:
            comment = self._first_comment(thread)
            if comment is not None:
                yield comment

    def _first_comment(self, thread: Any) -> ForgeComment | None:
        """Return the first comment of a thread on the whole request; none if it is deleted."""
        if thread.get("isDeleted") or thread.get("threadContext"):
            return None
        for row in thread["comments"]:
            is_first = row["id"] == FIRST_COMMENT
            if is_first and not row.get("isDeleted"):
                return self._comment(thread["id"], row)
        return None

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return all: those that are folded say so in their first line."""
        return list(comments)

    def create(self, text: str) -> ForgeComment:
        """Begin a thread that is closed."""
        document = {
            "comments": [
                {
                    "parentCommentId": 0,
                    "content": text,
                    "commentType": TEXT_COMMENT,
                }
            ],
            "status": CLOSED_THREAD,
        }
        path = f"{self._path}/threads?{VERSION}"
        thread = self._transport.send("POST", path, document).document()
        return self._comment(thread["id"], thread["comments"][0])

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a comment."""
        path = self._comment_path(comment)
        self._transport.send("PATCH", path, {"content": text})

    def delete(self, comment: ForgeComment) -> None:
        """Delete a comment; its thread goes with it."""
        self._transport.send("DELETE", self._comment_path(comment))

    def hide(self, comment: ForgeComment, folded: str) -> None:
        """Fold a comment."""
        self.update(comment, folded)

    def _comment_path(self, comment: ForgeComment) -> str:
        thread = f"{self._path}/threads/{comment.number}"
        return f"{thread}/comments/{FIRST_COMMENT}?{VERSION}"

    def _comment(self, thread: int, row: Any) -> ForgeComment:
        web_url = f"{self._transport.api}{self._web_path}/{self._request}"
        return ForgeComment(
            number=thread,
            # Of a comment by the system there may be no text.
            text=row.get("content") or "",
            author=row["author"]["id"],
            url=f"{web_url}?discussionId={thread}",
        )
