"""What the documentation of each code host says of the requests that are sent to it.

Written down by hand, as far as comments of requests are concerned, and compared in 2026-11 with:
- GitHub: REST reference of issue comments and rate limits, GraphQL reference of minimizeComment
- GitLab: doc/api/notes.md (notes of merge requests)
- Bitbucket Cloud: OpenAPI description of api.bitbucket.org/2.0, pullrequest_comment
- Bitbucket Data Center: OpenAPI description of /rest/api/latest, RestComment
- Azure DevOps: MicrosoftDocs/vsts-rest-api-specs, specification/git/6.0/git.json,
  GitPullRequestCommentThread, Comment, CommentThreadStatus and CommentType
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

TEXT: Final = {"type": "string", "minLength": 1}
NOTHING: Final = None
JsonShape = dict[str, Any] | None


def _closed(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class Operation(NamedTuple):
    """A request that is documented: its query parameters, and the schema of its body."""

    method: str
    path: str
    query: Mapping[str, str] = MappingProxyType({})
    body: JsonShape = NOTHING


PAGE: Final = {"per_page": r"[1-9]\d?|100", "page": r"[1-9]\d*"}
OPERATIONS: Final[dict[str, tuple[Operation, ...]]] = {
    "github": (
        Operation("GET", r"/repos/[^/]+/[^/]+/issues/\d+/comments", PAGE),
        Operation(
            "POST",
            r"/repos/[^/]+/[^/]+/issues/\d+/comments",
            body=_closed(("body",), body=TEXT),
        ),
        Operation(
            "PATCH",
            r"/repos/[^/]+/[^/]+/issues/comments/\d+",
            body=_closed(("body",), body=TEXT),
        ),
        Operation("DELETE", r"/repos/[^/]+/[^/]+/issues/comments/\d+"),
        Operation("GET", r"/repos/[^/]+/[^/]+/pulls/\d+"),
        Operation(
            "POST",
            r"/graphql",
            body=_closed(("query",), query=TEXT, variables={"type": "object"}),
        ),
    ),
    "gitlab": (
        Operation("GET", r"/user"),
        Operation("GET", r"/projects/[^/]+/merge_requests/\d+"),
        Operation(
            "GET",
            r"/projects/[^/]+/merge_requests/\d+/notes",
            {**PAGE, "order_by": "created_at|updated_at", "sort": "asc|desc"},
        ),
        Operation(
            "POST",
            r"/projects/[^/]+/merge_requests/\d+/notes",
            body=_closed(("body",), body=TEXT),
        ),
        Operation(
            "PUT",
            r"/projects/[^/]+/merge_requests/\d+/notes/\d+",
            body=_closed(("body",), body=TEXT),
        ),
        Operation("DELETE", r"/projects/[^/]+/merge_requests/\d+/notes/\d+"),
    ),
    "bitbucket-cloud": (
        Operation("GET", r"/user"),
        Operation("GET", r"/repositories/[^/]+/[^/]+/pullrequests/\d+"),
        Operation(
            "GET",
            r"/repositories/[^/]+/[^/]+/pullrequests/\d+/comments",
            {"pagelen": r"[1-9]\d?|100", "page": r"[1-9]\d*"},
        ),
        Operation(
            "POST",
            r"/repositories/[^/]+/[^/]+/pullrequests/\d+/comments",
            body=_closed(("content",), content=_closed(("raw",), raw=TEXT)),
        ),
        Operation(
            "PUT",
            r"/repositories/[^/]+/[^/]+/pullrequests/\d+/comments/\d+",
            body=_closed(("content",), content=_closed(("raw",), raw=TEXT)),
        ),
        Operation(
            "DELETE",
            r"/repositories/[^/]+/[^/]+/pullrequests/\d+/comments/\d+",
        ),
        Operation(
            "POST",
            r"/repositories/[^/]+/[^/]+/pullrequests/\d+/comments/\d+/resolve",
        ),
    ),
    "bitbucket-data-center": (
        Operation("GET", r"/projects/[^/]+/repos/[^/]+/pull-requests/\d+"),
        Operation(
            "GET",
            r"/projects/[^/]+/repos/[^/]+/pull-requests/\d+/activities",
            {"limit": r"\d+", "start": r"\d+"},
        ),
        Operation(
            "POST",
            r"/projects/[^/]+/repos/[^/]+/pull-requests/\d+/comments",
            body=_closed(("text",), text=TEXT),
        ),
        Operation(
            "PUT",
            r"/projects/[^/]+/repos/[^/]+/pull-requests/\d+/comments/\d+",
            body=_closed(
                ("version",),
                text=TEXT,
                version={"type": "integer"},
                threadResolved={"type": "boolean"},
            ),
        ),
        Operation(
            "DELETE",
            r"/projects/[^/]+/repos/[^/]+/pull-requests/\d+/comments/\d+",
            {"version": r"\d+"},
        ),
    ),
    "azure-devops": (
        Operation("GET", r"/_apis/connectionData"),
        Operation(
            "GET",
            r"/[^/]+/_apis/git/repositories/[^/]+/pullRequests/\d+",
            {"api-version": r"6\.0"},
        ),
        Operation(
            "GET",
            r"/[^/]+/_apis/git/repositories/[^/]+/pullRequests/\d+/threads",
            {"api-version": r"6\.0"},
        ),
        Operation(
            "POST",
            r"/[^/]+/_apis/git/repositories/[^/]+/pullRequests/\d+/threads",
            {"api-version": r"6\.0"},
            _closed(
                ("comments",),
                comments={
                    "type": "array",
                    "minItems": 1,
                    "items": _closed(
                        ("content",),
                        content=TEXT,
                        parentCommentId={"type": "integer"},
                        commentType={
                            "enum": ["unknown", "text", "codeChange", "system"]
                        },
                    ),
                },
                status={
                    "enum": [
                        "unknown",
                        "active",
                        "fixed",
                        "wontFix",
                        "closed",
                        "byDesign",
                        "pending",
                    ]
                },
            ),
        ),
        Operation(
            "PATCH",
            r"/[^/]+/_apis/git/repositories/[^/]+/pullRequests/\d+/threads/\d+/comments/\d+",
            {"api-version": r"6\.0"},
            _closed(("content",), content=TEXT),
        ),
        Operation(
            "DELETE",
            r"/[^/]+/_apis/git/repositories/[^/]+/pullRequests/\d+/threads/\d+/comments/\d+",
            {"api-version": r"6\.0"},
        ),
    ),
}
