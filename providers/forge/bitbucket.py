"""Comments of pull requests on Bitbucket Cloud.

Facts: Bitbucket Cloud REST API reference (pull requests, users). A comment cannot be hidden; the
thread that it begins can be resolved, which folds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.forge.fault import LOGIN, MISSING, PERMISSION, ForgeRefusal
from providers.forge.protocol import ForgeComment, RequestHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.forge.transport import Transport

PAGE_SIZE: Final = 100
MOST_PAGES: Final = 200
NOBODY: Final = (LOGIN, PERMISSION, MISSING)
RESOLVED: Final = "resolved"


class BitbucketCloudRequest:
    """The comments of a pull request."""

    def __init__(
        self, transport: Transport, repository: str, request: int
    ) -> None:
        self._transport = transport
        name = quote(repository)
        self._path = f"/repositories/{name}/pullrequests/{request}"

    def account(self) -> str:
        """Return the account of the token; the token of a repository may belong to none."""
        try:
            document = self._transport.send("GET", "/user").document()
        except ForgeRefusal as error:
            if error.meaning in NOBODY:
                return ""
            raise
        return str(document["uuid"])

    def head(self) -> RequestHead:
        """Return the newest commit, which is shortened, and the repository of its branch."""
        document = self._transport.send("GET", self._path).document()
        source = document["source"]
        repository = (source["repository"] or {}).get("full_name", "")
        return RequestHead(
            commit=source["commit"]["hash"], repository=repository
        )

    def comments(self) -> Iterator[ForgeComment]:
        """Yield the comments on the whole request, without those on lines."""
        url = f"{self._path}/comments?pagelen={PAGE_SIZE}"
        for _ in range(MOST_PAGES):
            page = self._transport.send("GET", url).document()
            yield from (
                _comment(row)
                for row in page["values"]
                if not row.get("deleted") and not row.get("inline")
            )
            url = page.get("next", "")
            if not url:
                return

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return those that are not resolved."""
        return [comment for comment in comments if comment.handle != RESOLVED]

    def create(self, text: str) -> ForgeComment:
        """Write a comment on the whole request."""
        document = {"content": {"raw": text}}
        answer = self._transport.send(
            "POST", f"{self._path}/comments", document
        )
        return _comment(answer.document())

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("PUT", path, {"content": {"raw": text}})

    def delete(self, comment: ForgeComment) -> None:
        """Delete a comment."""
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("DELETE", path)

    def hide(self, comment: ForgeComment, folded: str) -> None:  # noqa: ARG002 - HTML is not shown
        """Resolve the thread of a comment."""
        path = f"{self._path}/comments/{comment.number}/resolve"
        self._transport.repeat(path)


def _comment(row: Any) -> ForgeComment:
    # The account of an author may have been deleted.
    user = row.get("user") or {}
    return ForgeComment(
        number=row["id"],
        text=row["content"]["raw"],
        handle=RESOLVED if row.get("resolution") else "",
        author=user.get("uuid", ""),
        url=row["links"]["html"]["href"],
    )
