"""Code hosts on this machine, with the shapes of their documentation: see official.py."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import jsonschema

from tests.providers.forge.official import OPERATIONS

TOKEN = "ghs_0123456789abcdefSECRETtoken"
US = "us"
STRANGER = "stranger"
REQUEST = 12
HEAD = "91c77aa4be21f0c3d2e1f00112233445566778899"[:40]
PAGE_SIZE = 100


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    document: Any
    headers: Message


class Reply(NamedTuple):
    """What is answered. One that is cut ends in the middle, after the work was done."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    is_cut: bool = False
    text: str | None = None


class Fault(NamedTuple):
    """In place of an answer, or after the work: for requests of a method, so many times."""

    method: str
    reply: Reply
    is_after: bool = False
    path: str = ""


class CommentMissing(Exception):  # noqa: N818 - it is an answer
    """A comment that was deleted, or never was."""


Routes: TypeAlias = tuple[tuple[str, str, Callable[[Asked], Reply]], ...]


class FakeHost:
    """The comments of one request, and whoever else writes to them."""

    service = ""
    api_path = ""
    repository = "acme/infra"
    account = US

    def __init__(self) -> None:
        self.comments: dict[int, dict[str, Any]] = {}
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.next_number = 1
        self.limit = 10**7
        self.head = HEAD
        self.fork = "fork/infra"
        self.url = ""
        # What others do between two requests; called before each.
        self.meanwhile: Callable[[Asked], None] = lambda _: None
        self.lock = threading.Lock()

    @property
    def api(self) -> str:
        return f"{self.url}{self.api_path}"

    def add(self, text: str, author: str = US, **more: Any) -> int:
        """A comment that is there already, or that somebody else writes."""
        number = self.next_number
        self.next_number += 1
        self.comments[number] = {
            "number": number,
            "text": text,
            "author": author,
            "hidden": False,
            "version": 0,
            **more,
        }
        return number

    def texts(self) -> list[str]:
        """What is shown, in order."""
        return [c["text"] for c in self.comments.values() if not c["hidden"]]

    def writes(self) -> list[str]:
        """The requests that change something."""
        return [
            a.method
            for a in self.asked
            if a.method != "GET" and not a.path.endswith("graphql")
        ]

    def handle(self, asked: Asked) -> Reply:
        with self.lock:
            self.asked.append(asked)
            self.meanwhile(asked)
            self.check(asked)
            for fault in self.faults:
                if fault.method == asked.method and fault.path in asked.path:
                    self.faults.remove(fault)
                    if fault.is_after:
                        self.answer(asked)
                    return fault.reply
            return self.answer(asked)

    def check(self, asked: Asked) -> None:
        """Raise for a request that the documentation of the host does not have."""
        below = asked.path.removeprefix(self.api_path)
        for operation in OPERATIONS[self.service]:
            if operation.method == asked.method and re.fullmatch(
                operation.path, below
            ):
                assert set(asked.query) <= set(operation.query), asked
                for name, value in asked.query.items():
                    assert re.fullmatch(operation.query[name], value), asked
                if operation.body is None:
                    assert asked.document is None, asked
                else:
                    jsonschema.validate(asked.document, operation.body)
                return
        raise AssertionError(f"{asked.method} {asked.path}")

    def comment_in(self, asked: Asked) -> dict[str, Any]:
        """The comment that a request names. Raises CommentMissing when it is gone."""
        found = re.search(r"/(?:comments|notes|threads)/(\d+)", asked.path)
        comment = self.comments.get(int(found[1]) if found else 0)
        if comment is None:
            raise CommentMissing
        return comment

    def routes(self) -> Routes:
        raise NotImplementedError

    def missing(self) -> Reply:
        raise NotImplementedError

    def answer(self, asked: Asked) -> Reply:
        for method, path, handle in self.routes():
            if asked.method == method and re.fullmatch(path, asked.path):
                try:
                    return handle(asked)
                except CommentMissing:
                    return self.missing()
        return self.missing()


class FakeGitHub(FakeHost):
    service = "github"
    api_path = "/ghe/api/v3"

    def check(self, asked: Asked) -> None:
        if asked.path == "/ghe/api/graphql":
            asked = asked._replace(path="/ghe/api/v3/graphql")
        super().check(asked)

    def routes(self) -> Routes:
        repository = f"/repos/{self.repository}"
        comments = f"{repository}/issues/{REQUEST}/comments"
        comment = rf"{repository}/issues/comments/\d+"
        return (
            ("POST", r".*/graphql", self.graphql),
            ("GET", f".*{repository}/pulls/{REQUEST}", self.pull),
            ("GET", f".*{comments}", self.page),
            ("POST", f".*{comments}", self.created),
            ("PATCH", f".*{comment}", self.updated),
            ("DELETE", f".*{comment}", self.deleted),
        )

    def missing(self) -> Reply:
        return Reply(404, {"message": "Not Found"})

    def row(self, number: int) -> dict[str, Any]:
        comment = self.comments[number]
        author = f"{comment['author']}[bot]"
        web_url = f"https://github.example.com/{self.repository}/pull/12"
        return {
            "id": number,
            "node_id": f"IC_{number}",
            "body": comment["text"].replace("\n", "\r\n"),
            # Of an account that was deleted nothing is told.
            "user": None if "ghost" in author else {"login": author},
            "html_url": f"{web_url}#issuecomment-{number}",
        }

    def pull(self, _: Asked) -> Reply:
        head = {"sha": self.head, "repo": {"full_name": self.fork}}
        return Reply(200, {"number": REQUEST, "head": head})

    def page(self, asked: Asked) -> Reply:
        size = int(asked.query["per_page"])
        begin = (int(asked.query["page"]) - 1) * size
        numbers = sorted(self.comments)[begin : begin + size]
        return Reply(200, [self.row(number) for number in numbers])

    def created(self, asked: Asked) -> Reply:
        text = asked.document["body"]
        if len(text) <= self.limit:
            return Reply(201, self.row(self.add(text)))
        error = {
            "resource": "IssueComment",
            "code": "custom",
            "field": "body",
            "message": f"body is too long (maximum is {self.limit} characters)",
        }
        return Reply(422, {"message": "Validation Failed", "errors": [error]})

    def updated(self, asked: Asked) -> Reply:
        comment = self.comment_in(asked)
        comment["text"] = asked.document["body"]
        return Reply(200, self.row(comment["number"]))

    def deleted(self, asked: Asked) -> Reply:
        del self.comments[self.comment_in(asked)["number"]]
        return Reply(204)

    def graphql(self, asked: Asked) -> Reply:
        query, variables = asked.document["query"], asked.document["variables"]
        if "viewer" in query:
            viewer = {"login": f"{self.account}[bot]"}
            return Reply(200, {"data": {"viewer": viewer}})
        if "nodes" in query:
            nodes = [self.node(handle) for handle in variables["ids"]]
            document: dict[str, Any] = {"data": {"nodes": nodes}}
            if None in nodes:
                document["errors"] = [self.not_found(str(nodes))]
            return Reply(200, document)
        assert "classifier: OUTDATED" in query
        comment = self.comments.get(int(variables["id"][3:]))
        if comment is None:
            errors = [self.not_found(variables["id"])]
            return Reply(
                200, {"data": {"minimizeComment": None}, "errors": errors}
            )
        comment["hidden"] = True
        hidden = {"minimizedComment": {"isMinimized": True}}
        return Reply(200, {"data": {"minimizeComment": hidden}})

    def not_found(self, handle: str) -> dict[str, Any]:
        told = f"Could not resolve to a node with the global id of '{handle}'"
        return {"type": "NOT_FOUND", "message": told}

    def node(self, handle: str) -> dict[str, Any] | None:
        comment = self.comments.get(int(handle[3:]))
        if comment is None:
            return None
        return {"id": handle, "isMinimized": comment["hidden"]}


class FakeGitLab(FakeHost):
    service = "gitlab"
    api_path = "/gitlab/api/v4"
    repository = "acme/platform/infra"

    def routes(self) -> Routes:
        request = (
            f".*/projects/acme%2Fplatform%2Finfra/merge_requests/{REQUEST}"
        )
        return (
            ("GET", r".*/user", self.user),
            ("GET", request, self.merge_request),
            ("GET", f"{request}/notes", self.page),
            ("POST", f"{request}/notes", self.created),
            ("PUT", rf"{request}/notes/\d+", self.updated),
            ("DELETE", rf"{request}/notes/\d+", self.deleted),
        )

    def missing(self) -> Reply:
        return Reply(404, {"message": "404 Project Not Found"})

    def row(self, number: int) -> dict[str, Any]:
        comment = self.comments[number]
        return {
            "id": number,
            "body": comment["text"],
            "author": {"id": 7 if comment["author"] == US else 8},
            "system": comment.get("system", False),
            "noteable_type": "MergeRequest",
            "resolvable": False,
        }

    def user(self, _: Asked) -> Reply:
        return Reply(200, {"id": 7, "username": "project_1_bot"})

    def merge_request(self, _: Asked) -> Reply:
        web_url = (
            f"https://gitlab.example.com/{self.repository}/-/merge_requests/12"
        )
        document = {"iid": REQUEST, "sha": self.head, "web_url": web_url}
        return Reply(200, document)

    def page(self, asked: Asked) -> Reply:
        assert asked.query["sort"] == "desc"
        size, page = int(asked.query["per_page"]), int(asked.query["page"])
        numbers = sorted(self.comments, reverse=True)
        following = str(page + 1) if len(numbers) > page * size else ""
        shown = numbers[(page - 1) * size : page * size]
        rows = [self.row(number) for number in shown]
        return Reply(200, rows, {"X-Next-Page": following})

    def created(self, asked: Asked) -> Reply:
        text = asked.document["body"]
        if len(text) <= self.limit:
            # GitLab keeps no line breaks around a note.
            return Reply(201, self.row(self.add(text.strip())))
        note = [f"is too long (maximum is {self.limit} characters)"]
        return Reply(400, {"message": {"note": note}})

    def updated(self, asked: Asked) -> Reply:
        comment = self.comment_in(asked)
        comment["text"] = asked.document["body"]
        return Reply(200, self.row(comment["number"]))

    def deleted(self, asked: Asked) -> Reply:
        del self.comments[self.comment_in(asked)["number"]]
        return Reply(204)


class FakeBitbucketCloud(FakeHost):
    service = "bitbucket-cloud"
    api_path = "/2.0"

    def routes(self) -> Routes:
        request = f".*/repositories/{self.repository}/pullrequests/{REQUEST}"
        comment = rf"{request}/comments/\d+"
        return (
            ("GET", r".*/user", self.user),
            ("GET", request, self.pull),
            ("GET", f"{request}/comments", self.page),
            ("POST", f"{request}/comments", self.created),
            ("PUT", comment, self.updated),
            ("DELETE", comment, self.deleted),
            ("POST", f"{comment}/resolve", self.resolved),
        )

    def refused(self, status: int, told: str) -> Reply:
        return Reply(status, {"type": "error", "error": {"message": told}})

    def missing(self) -> Reply:
        return self.refused(404, f"Repository {self.repository} not found")

    def row(self, number: int) -> dict[str, Any]:
        comment = self.comments[number]
        web_url = f"https://bitbucket.org/{self.repository}/pull-requests/12"
        row: dict[str, Any] = {
            "id": number,
            "content": {"raw": comment["text"], "markup": "markdown"},
            "user": {"uuid": f"{{{comment['author']}}}"},
            "deleted": comment.get("deleted", False),
            "links": {"html": {"href": f"{web_url}#comment-{number}"}},
        }
        if comment["hidden"]:
            row["resolution"] = {"type": "comment_resolution"}
        if comment.get("inline"):
            row["inline"] = {"path": "a.yaml"}
        return row

    def user(self, _: Asked) -> Reply:
        if not self.account:
            return self.refused(403, "Forbidden")
        return Reply(200, {"uuid": f"{{{self.account}}}"})

    def pull(self, _: Asked) -> Reply:
        source = {
            "commit": {"hash": self.head[:12]},
            "repository": {"full_name": self.fork},
        }
        return Reply(200, {"id": REQUEST, "source": source})

    def page(self, asked: Asked) -> Reply:
        size = int(asked.query["pagelen"])
        page = int(asked.query.get("page", 1))
        numbers = sorted(self.comments)
        shown = numbers[(page - 1) * size : page * size]
        document: dict[str, Any] = {
            "pagelen": size,
            "values": [self.row(number) for number in shown],
        }
        if len(numbers) > page * size:
            link = f"{self.url}{asked.path}?pagelen={size}&page={page + 1}"
            document["next"] = link
        return Reply(200, document)

    def created(self, asked: Asked) -> Reply:
        text = asked.document["content"]["raw"]
        if len(text) <= self.limit:
            return Reply(201, self.row(self.add(text)))
        told = (
            f"Please enter a non-empty value less than {self.limit} characters"
        )
        return self.refused(400, told)

    def updated(self, asked: Asked) -> Reply:
        comment = self.comment_in(asked)
        if comment["author"] != US:
            return self.refused(403, "Forbidden")
        comment["text"] = asked.document["content"]["raw"]
        return Reply(200, self.row(comment["number"]))

    def deleted(self, asked: Asked) -> Reply:
        comment = self.comment_in(asked)
        if comment["author"] != US:
            return self.refused(403, "Forbidden")
        del self.comments[comment["number"]]
        return Reply(204)

    def resolved(self, asked: Asked) -> Reply:
        self.comment_in(asked)["hidden"] = True
        return Reply(200, {"type": "comment_resolution"})


class FakeDataCenter(FakeHost):
    service = "bitbucket-data-center"
    api_path = "/bb/rest/api/latest"

    def routes(self) -> Routes:
        request = f".*/projects/acme/repos/infra/pull-requests/{REQUEST}"
        return (
            ("GET", request, self.pull),
            ("GET", f"{request}/activities", self.page),
            ("POST", f"{request}/comments", self.created),
            ("PUT", rf"{request}/comments/\d+", self.updated),
            ("DELETE", rf"{request}/comments/\d+", self.deleted),
        )

    def named(self, status: int, document: Any = None) -> Reply:
        """Answers name the account, where the token has one."""
        headers = {"X-AUSERNAME": self.account} if self.account else {}
        return Reply(status, document, headers)

    def refused(self, status: int, told: str) -> Reply:
        return self.named(status, {"errors": [{"message": told}]})

    def missing(self) -> Reply:
        return self.refused(404, "Repository does not exist.")

    def row(self, number: int) -> dict[str, Any]:
        comment = self.comments[number]
        return {
            "id": number,
            "version": comment["version"],
            "text": comment["text"],
            "author": {"name": comment["author"]},
            "threadResolved": comment["hidden"],
            "state": "OPEN",
        }

    def pull(self, _: Asked) -> Reply:
        key, slug = self.fork.split("/")
        repository = {"slug": slug, "project": {"key": key}}
        source = {"latestCommit": self.head, "repository": repository}
        return self.named(200, {"id": REQUEST, "fromRef": source})

    def page(self, asked: Asked) -> Reply:
        start, limit = int(asked.query["start"]), int(asked.query["limit"])
        rows: list[dict[str, Any]] = [
            {
                "action": "COMMENTED",
                "commentAction": "ADDED",
                "comment": self.row(number),
            }
            for number in sorted(self.comments, reverse=True)
        ]
        rows.append({"action": "OPENED"})
        page = {
            "values": rows[start : start + limit],
            "isLastPage": len(rows) <= start + limit,
            "nextPageStart": start + limit,
        }
        return self.named(200, page)

    def created(self, asked: Asked) -> Reply:
        text = asked.document["text"]
        if len(text) <= self.limit:
            return self.named(201, self.row(self.add(text)))
        told = (
            f"Please enter a non-empty value less than {self.limit} characters"
        )
        return self.refused(400, told)

    def checked(self, asked: Asked) -> dict[str, Any] | Reply:
        comment = self.comment_in(asked)
        if comment["author"] != US:
            return self.refused(401, "You are not permitted")
        version = int((asked.document or asked.query)["version"])
        if version != comment["version"]:
            told = "The comment has been updated by someone else"
            return self.refused(409, told)
        return comment

    def updated(self, asked: Asked) -> Reply:
        comment = self.checked(asked)
        if isinstance(comment, Reply):
            return comment
        comment["version"] += 1
        comment["text"] = asked.document.get("text", comment["text"])
        comment["hidden"] |= asked.document.get("threadResolved", False)
        return self.named(200, self.row(comment["number"]))

    def deleted(self, asked: Asked) -> Reply:
        comment = self.checked(asked)
        if isinstance(comment, Reply):
            return comment
        del self.comments[comment["number"]]
        return self.named(204)


class FakeAzureDevOps(FakeHost):
    service = "azure-devops"
    api_path = "/tfs/acme"
    repository = "web shop/infra"

    def routes(self) -> Routes:
        request = (
            f".*/web%20shop/_apis/git/repositories/infra/pullRequests/{REQUEST}"
        )
        comment = rf"{request}/threads/\d+/comments/1"
        return (
            ("GET", r".*/_apis/connectionData", self.connection),
            ("GET", request, self.pull),
            ("GET", f"{request}/threads", self.page),
            ("POST", f"{request}/threads", self.created),
            ("PATCH", comment, self.updated),
            ("DELETE", comment, self.deleted),
        )

    def missing(self) -> Reply:
        told = "TF401019: The Git repository does not exist"
        return Reply(404, {"message": told, "errorCode": 0})

    def thread(self, number: int) -> dict[str, Any]:
        comment = self.comments[number]
        is_deleted = comment.get("deleted", False)
        row = {
            "id": 1,
            "parentCommentId": 0,
            "author": {"id": comment["author"]},
            "commentType": "text",
        }
        # The text of a deleted comment is not told.
        row |= {"isDeleted": True} if is_deleted else {}
        row |= {} if is_deleted else {"content": comment["text"]}
        return {
            "id": number,
            "comments": [row],
            "status": comment.get("status", "closed"),
            "threadContext": None,
            "isDeleted": is_deleted,
        }

    def connection(self, _: Asked) -> Reply:
        return Reply(200, {"authenticatedUser": {"id": US}})

    def pull(self, _: Asked) -> Reply:
        commit = {"commitId": self.head}
        document = {"pullRequestId": 12, "lastMergeSourceCommit": commit}
        return Reply(200, document)

    def page(self, _: Asked) -> Reply:
        threads = [self.thread(number) for number in sorted(self.comments)]
        return Reply(200, {"value": threads, "count": len(threads)})

    def created(self, asked: Asked) -> Reply:
        text = asked.document["comments"][0]["content"]
        if len(text) > self.limit:
            told = (
                f"A discussion comment cannot be longer than {self.limit} "
                "characters.\r\nParameter name: comment.Content"
            )
            return Reply(400, {"message": told})
        number = self.add(text, status=asked.document["status"])
        return Reply(200, self.thread(number))

    def comment_in(self, asked: Asked) -> dict[str, Any]:
        comment = super().comment_in(asked)
        if comment.get("deleted"):
            raise CommentMissing
        return comment

    def updated(self, asked: Asked) -> Reply:
        comment = self.comment_in(asked)
        comment["text"] = asked.document["content"]
        return Reply(200, self.thread(comment["number"])["comments"][0])

    def deleted(self, asked: Asked) -> Reply:
        self.comment_in(asked).update(deleted=True, hidden=True)
        return Reply(200)


HOSTS: dict[str, type[FakeHost]] = {
    kind.service: kind
    for kind in (
        FakeGitHub,
        FakeGitLab,
        FakeBitbucketCloud,
        FakeDataCenter,
        FakeAzureDevOps,
    )
}


def _handler_of(host: FakeHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # Headers and body leave together, and nobody waits for the second part.
        wbufsize = -1

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            asked = Asked(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                json.loads(body) if body else None,
                self.headers,
            )
            try:
                reply = host.handle(asked)
            except (AssertionError, jsonschema.ValidationError) as error:
                reply = Reply(599, {"message": f"undocumented: {error}"})
            self.write(reply)

        def do_POST(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def write(self, reply: Reply) -> None:
            text = "" if reply.document is None else json.dumps(reply.document)
            content = (text if reply.text is None else reply.text).encode()
            self.send_response_only(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header(
                "Content-Length", str(len(content) + 9 * reply.is_cut)
            )
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving(host: FakeHost) -> Iterator[None]:
    """Let a host answer at an address of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(host))
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    host.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
