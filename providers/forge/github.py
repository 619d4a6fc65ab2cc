"""Comments of pull requests on GitHub, or on GitHub Enterprise Server below a path.

Facts: GitHub REST API reference (issue comments, pulls) and GraphQL API reference
(minimizeComment, viewer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from providers.forge.protocol import ForgeComment, RequestHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.forge.transport import Transport

PAGE_SIZE: Final = 100
# Beyond it a request has more comments than anybody reads.
MOST_PAGES: Final = 200
VIEWER: Final = "query { viewer { login } }"
MINIMIZED: Final = (
    "query ($ids: [ID!]!) { nodes(ids: $ids) "
    "{ ... on IssueComment { id isMinimized } } }"
)
MINIMIZE: Final = (
    "mutation ($id: ID!) { minimizeComment("
    "input: {subjectId: $id, classifier: OUTDATED}) "
    "{ minimizedComment { isMinimized } } }"
)


class GitHubRequest:
    """The comments of a pull request."""

    def __init__(
        self, transport: Transport, repository: str, request: int
    ) -> None:
        self._transport = transport
        name = quote(repository)
        self._path = f"/repos/{name}/issues"
        self._request = request
        self._pull_path = f"/repos/{name}/pulls/{request}"

    def account(self) -> str:
        """Return the login of the token; a job's own is a bot, which REST does not name."""
        document = self._query(VIEWER, {})
        return str(document["viewer"]["login"])

    def head(self) -> RequestHead:
        """Return the newest commit, and the repository of its branch."""
        document = self._transport.send("GET", self._pull_path).document()
        head = document["head"]
        # A fork that was deleted is no repository any more.
        repository = (head["repo"] or {}).get("full_name", "")
        return RequestHead(commit=head["sha"], repository=repository)

    def comments(self) -> Iterator[ForgeComment]:
        """Yield the comments of the conversation, the oldest first."""
        base = f"{self._path}/{self._request}/comments?per_page={PAGE_SIZE}"
        for page in range(1, MOST_PAGES + 1):
            rows = self._transport.send("GET", f"{base}&page={page}").document()
            yield from map(_comment, rows)
            if len(rows) < PAGE_SIZE:
                return

    def shown(self, comments: Sequence[ForgeComment]) -> list[ForgeComment]:
        """Return those that are not minimized."""
        handles = [comment.handle for comment in comments]
        document = self._query(MINIMIZED, {"ids": handles[-PAGE_SIZE:]})
        hidden = {
            node["id"]
            for node in document["nodes"]
            # One that was deleted meanwhile is null.
            if node and node["isMinimized"]
        }
        return [comment for comment in comments if comment.handle not in hidden]

    def create(self, text: str) -> ForgeComment:
        """Write a comment into the conversation."""
        path = f"{self._path}/{self._request}/comments"
        answer = self._transport.send("POST", path, {"body": text})
        return _comment(answer.document())

    def update(self, comment: ForgeComment, text: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("PATCH", path, {"body": text})

    def delete(self, comment: ForgeComment) -> None:
        """Delete a comment."""
        path = f"{self._path}/comments/{comment.number}"
        self._transport.send("DELETE", path)

    def hide(self, comment: ForgeComment, folded: str) -> None:  # noqa: ARG002 - GitHub can hide
        """Minimize a comment as outdated."""
        self._query(MINIMIZE, {"id": comment.handle})

    def _query(self, query: str, variables: dict[str, object]) -> Any:
        """Send a query. Its address is beside that of REST: /api/v3 and /api/graphql."""
        base = self._transport.api.removesuffix("/v3")
        answer = self._transport.query(
            f"{base}/graphql", {"query": query, "variables": variables}
        )
        return answer.document()["data"]


def _comment(row: Any) -> ForgeComment:
    # Of an account that was deleted nothing is said.
    user = row["user"] or {}
    return ForgeComment(
        number=row["id"],
        text=row["body"] or "",
        handle=row["node_id"],
        author=user.get("login", ""),
        url=row["html_url"],
    )
