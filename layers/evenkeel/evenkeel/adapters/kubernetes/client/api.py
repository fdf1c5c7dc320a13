"""Sends requests to one API server. Reads lists by page. After status 401, repeats a request once with a new token.

``RESTClientObject`` provides TLS, connections and the undecoded answer. Redirects and the transport's retries are off,
because a redirect would send the token to another server, and a retry could send a patch twice.
"""

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

from evenkeel.adapters.addresses import ForbiddenAddressError
from evenkeel.adapters.connections import CONNECT_SECONDS
from evenkeel.adapters.kubernetes.client.lists import ReceivedList, continuation_of, read_json
from evenkeel.adapters.kubernetes.client.transport import (
    Allowance,
    TooMuchError,
    UnusableAnswerError,
    read_body,
)
from evenkeel.adapters.kubernetes.objects import get_path
from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    ClusterUnavailableError,
    ConflictError,
    ForbiddenError,
    RejectedError,
    TooLargeError,
)
from evenkeel.application.ports import Clock, Remaining
from evenkeel.domain.model.groups import CLOCKS_AGREE

_log = logging.getLogger("evenkeel.kubernetes")

# The limit of one request with its answer, in seconds. A whole check has less time. A run with less remaining time
# starts no patch.
_REQUEST_SECONDS = 13.0
# client-go's page size.
PAGE = 500
# The number of retries, as in client-go, while an overloaded API server asks clients to wait.
_PATIENCE = 3
_USER_AGENT = "evenkeel"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # the body is JSON, which is valid YAML
_BY_US = "fieldManager=evenkeel"
# The files that grant the rights of checks and runs in every cluster.
RIGHTS = "deploy/kubernetes/rbac.yaml and rbac-readers.yaml"
_JSON = "application/json"
_PLAIN = {"Accept": _JSON}
# This header requests metadata alone. A server without this feature sends whole objects.
_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
# A text that contains this many consecutive characters of a token is treated as a quotation of the token.
_PART = 8
# A token consists of visible ASCII. The HTTP library refuses any other token with an error that quotes the token.
_TOKEN = re.compile(r"[!-~]+")
# A larger difference between the clocks probably comes from a proxy, and not from the API server's clock.
_LARGEST_SKEW = timedelta(hours=1)
# One of five answers may have a wrong time. Several wrong times mean that several servers with different clocks answer.
_ANSWERS_TO_AGREE = 5
_ANSWERS_KEPT = 15
# The number of sent tokens that are kept, because each of sixteen parallel writers may have renewed its token.
_TOKENS_KEPT = 16


class Answer(NamedTuple):
    """An API server's answer to one request."""

    method: str
    path: str  # without its query
    status: int
    headers: Mapping[str, str]  # with names in lower case
    text: bytes


class Credential(Protocol):
    """The source of the bearer token."""

    def token(self, *, fresh: bool) -> str | None:
        """Return the token, a new one if ``fresh``; None where a client certificate is used. Raises AccessError."""


class KubernetesApi:
    """One API server with its connections. It keeps no object of a check."""

    def __init__(self, name: str, client: RESTClientObject, credential: Credential | None, clock: Clock) -> None:
        """``credential`` None: ``client`` has the token."""
        self.name = name
        self._client = client
        self.credential = self._credential = credential
        self._clock = clock
        # Clock differences: one for each answer since the check began.
        self._skews: deque[timedelta] = deque(maxlen=_ANSWERS_KEPT)
        self._reported = ""  # the last log line about the server's clock
        self._served: dict[str, list[str]] = {}  # the known versions by API group
        self._tokens_sent: tuple[str, ...] = ()  # the tokens that were last sent: several while a token is renewed
        self.reached = True  # False: the last request got no answer

    @property
    def clock_skew(self) -> timedelta:
        """Return the server's clock minus the function's clock.

        The result is zero where the clocks agree, where the answers disagree, or where the difference is above an hour.
        """
        skew = self._agreed_skew() or timedelta(0)
        return skew if CLOCKS_AGREE < abs(skew) <= _LARGEST_SKEW else timedelta(0)

    def _agreed_skew(self) -> timedelta | None:
        """Return the median clock difference of five or more answers.

        The result is None where there are fewer answers, or where fewer than four fifths of the answers are within 30 s
        of the median.
        """
        skews = sorted(self._skews)
        if len(skews) < _ANSWERS_TO_AGREE:
            return None
        median = skews[len(skews) // 2]
        agreeing = sum(abs(skew - median) <= CLOCKS_AGREE for skew in skews)
        return median if agreeing * 5 >= len(skews) * 4 else None

    def begin_check(self) -> None:
        """Forget the times of earlier answers, because a clock may have been corrected since."""
        self._skews.clear()

    def confirm_clock(self, remaining: Remaining) -> None:
        """Where the time of an answer differs from the function's clock, request up to five answers to confirm it."""
        try:
            for _ in range(_ANSWERS_TO_AGREE - len(self._skews)):
                if all(abs(skew) <= CLOCKS_AGREE for skew in self._skews):
                    break
                self._call("GET", "/version", remaining)  # an answer of any status has a Date
        except (AccessError, ClusterUnavailableError):
            pass  # then the function's clock is used
        self._report_clock()

    def _report_clock(self) -> None:
        """Log that the server's time is not used, once for each reason."""
        agreed, problem = self._agreed_skew(), ""
        if agreed is not None and abs(agreed) > _LARGEST_SKEW:
            problem = "the Date of its answers is more than 1 h off: check the clocks of its API servers and proxies"
        elif agreed is None and len(self._skews) >= _ANSWERS_TO_AGREE:
            problem = "the Dates of its answers disagree by more than 30 s: check the clocks of its API servers"
        if problem and problem != self._reported:
            _log.warning("%s: %s; our own clock is used", self.name, problem, extra={"cluster": self.name})
        self._reported = problem

    def now(self) -> datetime:
        """Return the time by the clock of the API server, which also dates the objects of the cluster."""
        return self._clock.now() + self.clock_skew

    def _headers_of(self, response: Any) -> dict[str, str]:
        """Return an answer's headers, and store how far its Date is from the function's clock."""
        headers = {name.lower(): value for name, value in dict(response.getheaders() or {}).items()}
        answered_at = _time_of(headers)
        if answered_at is not None:
            self._skews.append(answered_at - self._clock.now())
        return headers

    def list_all(
        self,
        path: str,
        remaining: Remaining,
        selector: str | None = None,
        *,
        optional: bool = False,
        allowance: Allowance | None = None,
        metadata_only: bool = False,
    ) -> ReceivedList | None:
        """Return every page of a list; None where it is not served or, with ``optional``, is forbidden.

        Args:
            selector: A label selector.
            optional: True: return None where the list is forbidden.
            allowance: The limit of a quick check, which reads the API server's cache. None: a full check.
            metadata_only: True: request only the metadata of the objects.

        Raises:
            TooLargeError: the list is larger than the limit.
            ClusterUnavailableError: a page failed. An incomplete list is never returned.
        """
        pages: list[bytes] = []
        query: dict[str, str] = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        if allowance is not None:
            query["resourceVersion"] = "0"
        limit = allowance or Allowance()  # the default limit ends an endless list
        accept = _METADATA if metadata_only else _JSON
        for page in self._pages(path, query, remaining, limit, accept):
            if page.status == 404 and not pages:
                # The server no longer serves this version. The next check reads the served versions again.
                self._served.pop(path.split("/")[2], None)
                return None
            if page.status == 403 and optional and not pages:
                return None
            if page.status != 200:
                raise self._unusable(page)
            pages.append(page.text)
        return ReceivedList(f"GET {path} of {self.name}", tuple(pages), whole=allowance is None)

    def each_page(
        self, path: str, remaining: Remaining, allowance: Allowance | None, fields: str = "", *, rights: str
    ) -> Iterator[bytes]:
        """Yield the pages of a list of any length, for a caller that keeps no page.

        Args:
            allowance: The limit of all pages together. None: each page may be as large as a whole list.
            fields: A field selector.
            rights: The file that grants the right to list the objects. An error names the file.

        Raises:
            TooLargeError: the answers are larger than the limit.
            ClusterUnavailableError: a page failed or is not served. The pages before it are an incomplete list.
        """
        query = {"limit": str(PAGE)} | ({"fieldSelector": fields} if fields else {})
        for page in self._pages(path, query, remaining, allowance, _JSON):
            if page.status != 200:
                raise self._unusable(page, rights)
            yield page.text

    def _pages(
        self, path: str, query: dict[str, str], remaining: Remaining, allowance: Allowance | None, accept: str
    ) -> Iterator[Answer]:
        """Yield each page; a failed page is the last one. ``allowance`` None: each page has a separate limit."""
        while True:
            page = self._call("GET", f"{path}?{urlencode(query)}", remaining, None, allowance, {"Accept": accept})
            yield page
            continuation = continuation_of(page.text) or "" if page.status == 200 else ""
            if not isinstance(continuation, str) or (continuation and continuation == query.get("continue")):
                # A repeated continue token would request the same pages without end.
                raise ClusterUnavailableError(f"GET {path} of {self.name}: metadata.continue leads nowhere")
            if not continuation:
                return
            query["continue"] = continuation
            query.pop("resourceVersion", None)  # the continue token names the resourceVersion of the first page

    def served(self, group: str, remaining: Remaining) -> list[str]:
        """Return the served versions of an API group. If the group is not served, the list is empty and not cached."""
        served = self._served.get(group)
        if not served:  # two threads may both send the request
            served = self._served[group] = self._versions(group, remaining)
        return served

    def _versions(self, group: str, remaining: Remaining) -> list[str]:
        path = f"/apis/{url_quote(group)}"
        answer, body = self._ask("GET", path, remaining)
        if answer.status == 404:
            return []
        if answer.status != 200:
            raise self._unusable(answer)
        versions = body.get("versions")
        if not isinstance(versions, list) or not all(isinstance(entry, dict) for entry in versions):
            raise ClusterUnavailableError(f"GET {path} of {self.name}: the answer is no API group")
        return [str(entry.get("version")) for entry in versions]

    def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        remaining: Remaining,
        *,
        applies: bool = False,
        rights: str = RIGHTS,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Send a merge patch, or (``applies``) a server-side apply with force, and return the resulting object.

        The API server answers a stale ``metadata.resourceVersion`` with 409. A JSON patch would not show the conflict,
        because its failed ``test`` gets 422, which is also the answer to a validation error.

        Args:
            rights: The files that grant the right to write the object. An error names the files.
            dry_run: The API server checks rights, rules and admission, and writes nothing.

        Raises:
            ConflictError, ForbiddenError, RejectedError, ClusterUnavailableError
        """
        query, form = (f"{_BY_US}&force=true", _APPLY_PATCH) if applies else (_BY_US, _MERGE_PATCH)
        path = f"{path}?{query}{'&dryRun=All' if dry_run else ''}"
        answer, patched = self._ask("PATCH", path, remaining, body, form)
        if answer.status == 200:
            return patched
        if dry_run and answer.status == 400:
            return {}  # a webhook supports no dry run; only the real patch shows the webhook's answer
        # The object was deleted (404) or changed (409) since it was read.
        errors = {404: ConflictError, 409: ConflictError, 403: ForbiddenError}
        rejected = RejectedError if 400 <= answer.status < 500 else ClusterUnavailableError
        raise errors.get(answer.status, rejected)(self._describe(answer, rights))

    def get(self, path: str, remaining: Remaining) -> dict[str, Any] | None:
        """Return an object; None where it does not exist or is forbidden. Raises ClusterUnavailableError."""
        answer, item = self._ask("GET", path, remaining)
        if answer.status == 200:
            return item
        if answer.status in (403, 404):
            return None
        raise self._unusable(answer)

    def create(self, path: str, body: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """Create an object and return it. Raises RejectedError (also if it exists) or ClusterUnavailableError."""
        answer, item = self._ask("POST", f"{path}?{_BY_US}", remaining, body)
        if answer.status in (200, 201, 202):
            return item
        error = RejectedError if 400 <= answer.status < 500 else ClusterUnavailableError
        raise error(self._describe(answer))

    def evict(self, pod: str, uid: str, remaining: Remaining, *, rights: str) -> bool:
        """Evict the pod ``<namespace>/<name>`` with this uid. Return False if a disruption budget forbids it now.

        A server under load answers with the same code, 429. A pod with two budgets gets 500. Raises ForbiddenError,
        RejectedError, ClusterUnavailableError.
        """
        namespace, _, name = pod.partition("/")
        version = "v1" if "v1" in self.served("policy", remaining) else "v1beta1"
        body = {
            "apiVersion": f"policy/{version}",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction?{_BY_US}"
        headers = self._headers({**_PLAIN, "Content-Type": _JSON}, fresh=False)
        answer = self._send("POST", path, body, remaining, Allowance(), headers)  # without ``_call``, which retries 429
        if answer.status in (200, 201, 404, 409):  # 404 and 409: this pod is gone
            return True
        if answer.status in (429, 500):
            return False
        rejected = RejectedError if 400 <= answer.status < 500 else ClusterUnavailableError
        raise (ForbiddenError if answer.status == 403 else rejected)(self._describe(answer, rights))

    def allows(self, right: Mapping[str, str], remaining: Remaining) -> bool:
        """Return True where the identity has a right: verb, group, resource, namespace (empty: all), optionally a name.

        Every authenticated identity may send this request. Raises AccessRefusedError, ClusterUnavailableError.
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(right)},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer, body = self._ask("POST", path, remaining, review)
        status = body.get("status")
        if answer.status not in (200, 201) or not isinstance(status, dict):
            raise self._unusable(answer)
        return status.get("allowed") is True

    def _unusable(self, answer: Answer, rights: str = RIGHTS) -> ClusterUnavailableError:
        kind = AccessRefusedError if answer.status in (401, 403) else ClusterUnavailableError
        return kind(self._describe(answer, rights))

    def _describe(self, answer: Answer, rights: str = RIGHTS) -> str:
        hint, text = "", str(get_path(read_json(answer.text), ("message",)) or "")
        # A webhook's refusal is not a missing right.
        if answer.status == 403 and not text.startswith("admission webhook "):
            hint = f" (apply {rights}, and map this identity to its group)"
        elif answer.status == 401:
            hint = " (the credential is not accepted, also after a fresh one)"
        return f"{answer.method} {answer.path} of {self.name}: {answer.status} {self._redacted(text)}{hint}"

    def _redacted(self, text: str) -> str:
        """Return a server's or library's text as one short line. Withholds a text that quotes a token."""
        line = " ".join(text.split())[:300]
        for token in self._tokens_sent:
            size = min(_PART, len(token))
            parts = {token[start : start + size] for start in range(len(token) - size + 1)}
            if any(line[start : start + size] in parts for start in range(len(line))):
                return "(withheld: it quotes the token)"
        return line

    def _ask(
        self,
        method: str,
        path: str,
        remaining: Remaining,
        body: Mapping[str, Any] | None = None,
        form: str = _JSON,
    ) -> tuple[Answer, dict[str, Any]]:
        """Send a request other than for a list; return the answer and its fields. ``form``: the body's content type."""
        headers = _PLAIN if body is None else {**_PLAIN, "Content-Type": form}
        answer = self._call(method, path, remaining, body, headers=headers)
        fields = read_json(answer.text)
        if answer.status == 200 and fields is None:
            raise ClusterUnavailableError(f"{method} {answer.path} of {self.name}: the answer is not JSON")
        return answer, fields if isinstance(fields, dict) else {}

    def _call(
        self,
        method: str,
        path: str,
        remaining: Remaining,
        body: Mapping[str, Any] | None = None,
        allowance: Allowance | None = None,
        headers: Mapping[str, str] = _PLAIN,
    ) -> Answer:
        refused = fresh = False
        waits = 0
        while True:
            sent = self._headers(headers, fresh=fresh)
            answer = self._send(method, path, body, remaining, allowance or Allowance(), sent)
            fresh = answer.status == 401 and not refused and self._credential is not None
            if fresh:
                refused = True
                continue
            if answer.status not in (429, 503):
                return answer
            wait = _retry_after(answer.headers)
            if waits >= _PATIENCE or remaining() <= wait + CONNECT_SECONDS:
                raise ClusterUnavailableError(self._describe(answer))
            waits += 1
            _log.info("%s asks to wait %s s", self.name, wait)
            self._clock.sleep(wait)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        remaining: Remaining,
        allowance: Allowance,
        headers: dict[str, str],
    ) -> Answer:
        """Send one request, and return its whole answer, within the remaining time."""
        plain = path.partition("?")[0]
        seconds = min(remaining(), _REQUEST_SECONDS)
        if seconds <= 0:
            raise ClusterUnavailableError(f"{method} {plain} of {self.name}: no time left")
        self.reached = False
        failed: Exception
        try:
            response: Any = self._client.request(  # type: ignore[no-untyped-call]
                method,
                self._client.configuration.host.rstrip("/") + path,
                headers=headers,
                body=dict(body) if body is not None else None,
                _request_timeout=seconds,
            )
            text = read_body(response.response, allowance)
        except ForbiddenAddressError as error:
            failed = AccessError(f"{self.name}: {error}: no cluster is there")
        except TooMuchError as error:
            failed = TooLargeError(f"{method} {plain} of {self.name}: the answer is not usable: {error}")
        except UnusableAnswerError as error:
            failed = ClusterUnavailableError(f"{method} {plain} of {self.name}: the answer is not usable: {error}")
        except ApiException as error:  # an error of TLS
            reason = str(error.reason).partition("\n")[2]
            failed = ClusterUnavailableError(f"{self.name}: {self._redacted(reason)}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # The library wraps a timeout that occurs while the request is sent.
            late = any(
                isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError) for cause in (error, *error.args)
            )
            description = self._redacted(f"{type(error).__name__}: {error}")
            if late:
                description = f"not within {seconds:.0f} s ({type(error).__name__})"
            failed = ClusterUnavailableError(f"{self.name} does not answer: {description}")
        else:
            self.reached = True
            return Answer(method, plain, response.status, self._headers_of(response), text)
        try:
            raise failed  # outside of the except block: the library's error as context could quote a header
        finally:
            del failed  # the error's traceback refers to this frame, and would keep all pages in memory

    def _headers(self, headers: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
        value = self._authorization(fresh=fresh)
        authorization = {"Authorization": value} if value else {}
        return {**headers, "Accept-Encoding": "gzip", "User-Agent": _USER_AGENT, **authorization}

    def _authorization(self, *, fresh: bool) -> str | None:
        """Return the value of header Authorization; None where a client certificate is used."""
        if self._credential is not None:
            token = self._credential.token(fresh=fresh)
            value = None if token is None else f"Bearer {token}"
        else:
            value = self._client.configuration.get_api_key_with_prefix("BearerToken")
            token = None if value is None else value.removeprefix("Bearer ")
        if token and token not in self._tokens_sent:
            self._tokens_sent = (*self._tokens_sent, token)[-_TOKENS_KEPT:]
        if token is not None and not _TOKEN.fullmatch(token):
            raise AccessError(f"{self.name}: the token is not of visible ASCII characters alone: it is not sent")
        return value


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that the server asks to wait; 1 where the header has no number."""
    try:
        return max(0.0, float(headers.get("retry-after") or "1"))
    except ValueError:
        return 1.0


def _time_of(headers: Mapping[str, str]) -> datetime | None:
    """Return the time of an answer: its Date, plus its Age where it comes from a cache; None without a Date."""
    age = headers.get("age", "").strip()
    try:
        date = parsedate_to_datetime(headers.get("date", ""))
        cached = timedelta(seconds=int(age)) if age.isascii() and age.isdigit() else timedelta(0)
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)) + cached
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def described_right(right: Mapping[str, str]) -> str:
    """Return a sentence about a missing right."""
    resource = f"{right['resource']}.{right['group']}" if right["group"] else right["resource"]
    resource += f"/{right['subresource']}" if "subresource" in right else ""
    where = f" in namespace {right['namespace']}" if right["namespace"] else ""
    return f"it may not {right['verb']} {resource}{where}"
