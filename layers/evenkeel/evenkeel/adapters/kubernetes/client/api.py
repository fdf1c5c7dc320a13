"""The Kubernetes API over the real client's transport: pages, patches, patience, and one fresh credential.

The generated API classes build models that we do not need; ``ApiClient.call_api`` gives the transport with its TLS and
connection pool, and the answer before it is read. Redirects and the transport's own retries are off: a redirect would
carry the token away, and a retried patch could be sent twice.
"""

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from sys import intern
from typing import Any, Protocol
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, ApiException

from evenkeel.adapters.addresses import ForbiddenAddressError
from evenkeel.adapters.kubernetes.client.lists import ReceivedList, continuation_of, read_json
from evenkeel.adapters.kubernetes.client.transport import (
    CONNECT_SECONDS,
    Allowance,
    TooMuchError,
    UnusableAnswerError,
    read_body,
)
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

# A whole request with its answer. A look has less, a patch this: no run begins one that it could not see the end of.
_REQUEST_SECONDS = 13.0
# client-go's own page size: large enough for one page in most clusters, small enough for the API server.
PAGE = 500
# An API server under load names its own delay; three times is as often as client-go's flow control insists.
_PATIENCE = 3
_USER_AGENT = "evenkeel"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
_BY_US = "fieldManager=evenkeel"
# The files that allow what looks and runs do in every cluster.
RIGHTS = "deploy/kubernetes/rbac.yaml and rbac-readers.yaml"
_JSON = "application/json"
_PLAIN = {"Accept": _JSON}
# Of objects, only metadata; a server that cannot leave out the rest sends it.
_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
# So much of a token is not in a sentence by chance.
_PART = 8
# What a header can carry: visible ASCII. All else would be refused further down, in words that quote the token.
_TOKEN = re.compile(r"[!-~]+")

# A larger difference is more likely the mistake of a proxy than the clock of an API server.
_LARGEST_SKEW = timedelta(hours=1)
# Of five answers one may be wrong. Where more are, several servers answer, and their times say nothing.
_ANSWERS_TO_AGREE = 5
_ANSWERS_KEPT = 15

# Sixteen writers side by side may each have renewed theirs.
_TOKENS_KEPT = 16


class Credential(Protocol):
    """Where the bearer token comes from."""

    def token(self, *, fresh: bool) -> str | None:
        """The token, a new one if ``fresh``; None where a client certificate is used. Raises AccessError."""


class KubernetesApi:
    """One API server. Keeps its connections; holds no state of a look."""

    def __init__(
        self,
        name: str,
        client: ApiClient,
        credential: Credential | None,
        clock: Clock,
        served: dict[str, list[str]] | None = None,
    ) -> None:
        """``credential`` None: the client's own configuration has it, as a local kubeconfig does.

        ``served``: versions by API group, as this server has said before; what it says is added.
        """
        self.name = name
        self._client = client
        self.credential = self._credential = credential
        self._clock = clock
        self._skews: deque[timedelta] = deque(maxlen=_ANSWERS_KEPT)  # of the answers since the check began
        self._reported = ""  # what was last logged about the server's clock
        self._served: dict[str, list[str]] = {} if served is None else served
        self._tokens_sent: tuple[str, ...] = ()  # the tokens that were last sent: two at a time while one is renewed
        self.reached = True  # at the last try

    @property
    def clock_skew(self) -> timedelta:
        """Return the server's clock less ours; zero where they agree, or the answers do not."""
        skew = self._agreed_skew() or timedelta(0)
        return skew if CLOCKS_AGREE < abs(skew) <= _LARGEST_SKEW else timedelta(0)

    def _agreed_skew(self) -> timedelta | None:
        """Return the median difference of five answers or more; None unless four of five are within 30 s of it."""
        skews = sorted(self._skews)
        if len(skews) < _ANSWERS_TO_AGREE:
            return None
        median = skews[len(skews) // 2]
        agreeing = sum(abs(skew - median) <= CLOCKS_AGREE for skew in skews)
        return median if agreeing * 5 >= len(skews) * 4 else None

    def begin_check(self) -> None:
        """Forget what earlier answers said of the server's time: its clock or ours may have been set since then."""
        self._skews.clear()

    def confirm_clock(self, remaining: Remaining) -> None:
        """Read more answers where few have come and one differs from our clock: a single one may be wrong."""
        try:
            for _ in range(_ANSWERS_TO_AGREE - len(self._skews)):
                if all(abs(skew) <= CLOCKS_AGREE for skew in self._skews):
                    break
                self._call("GET", "/version", remaining)  # an answer of any status has a Date
        except (AccessError, ClusterUnavailableError):
            pass  # our own clock is used
        self._report_clock()

    def _report_clock(self) -> None:
        """Log once that the server's time is not used."""
        agreed, said = self._agreed_skew(), ""
        if agreed is not None and abs(agreed) > _LARGEST_SKEW:
            said = "the Date of its answers is more than 1 h off: check the clocks of its API servers and proxies"
        elif agreed is None and len(self._skews) >= _ANSWERS_TO_AGREE:
            said = "the Dates of its answers disagree by more than 30 s: check the clocks of its API servers"
        if said and said != self._reported:
            _log.warning("%s: %s; our own clock is used", self.name, said, extra={"cluster": self.name})
        self._reported = said

    def now(self) -> datetime:
        """Return the server's time, as far as it is known: the time that it and the cluster's controllers stamp."""
        return self._clock.now() + self.clock_skew

    def _headers_of(self, response: Any) -> dict[str, str]:
        """Return an answer's headers, and keep what its Date says of the server's clock."""
        headers = dict(response.getheaders() or {})
        said = _time_of(headers)
        if said is not None:
            self._skews.append(said - self._clock.now())
        return headers

    def list_all(
        self,
        path: str,
        remaining: Remaining,
        selector: str | None = None,
        *,
        optional: bool = False,
        look: Allowance | None = None,
        metadata_only: bool = False,
    ) -> ReceivedList | None:
        """All objects under a path, every page; None where the API does not serve it, or (optional) forbids it.

        Args:
            path: Of the kind, in one namespace or all.
            remaining: Seconds that are left.
            selector: By labels.
            optional: It may be forbidden.
            look: The list is only looked at: as the API server remembers it, a second ago or so, which costs it no
                read of its store; and no more of it than this allows.
            metadata_only: Of the objects nothing else is needed.

        Raises:
            TooLargeError: it holds more than may be received.
            ClusterUnavailableError: any page failed. Half a list is never returned.
        """
        pages: list[bytes] = []
        query: dict[str, str] = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        if look is not None:
            query["resourceVersion"] = "0"
        allowance = look or Allowance()  # pages without end end here, if not with the time
        for status, text in self._pages(path, query, remaining, allowance, _METADATA if metadata_only else _JSON):
            if status == 404 and not pages:
                # A version that was served has gone: ask again at the next look.
                self._served.pop(path.split("/")[2], None)
                return None
            if status == 403 and optional and not pages:
                return None
            if status != 200:
                raise self._unusable(path, status, self._read("GET", path, status, text))
            pages.append(text)
        return ReceivedList(f"GET {path} of {self.name}", tuple(pages), whole=look is None)

    def each_page(
        self, path: str, remaining: Remaining, allowance: Allowance | None, fields: str = "", *, rights: str
    ) -> Iterator[bytes]:
        """The pages of a list one after the other, for who reads each and keeps none: of any length, in the time given.

        Args:
            path: Of the kind, in all namespaces.
            remaining: Seconds that are left.
            allowance: What may be received of all pages together; None: as much of each as of a whole list.
            fields: A field selector.
            rights: The file that whoever may not list this has to apply.

        Raises:
            TooLargeError: it holds more than may be received.
            ClusterUnavailableError: a page failed, or nothing is served there; what came before it is half a list.
        """
        query = {"limit": str(PAGE)} | ({"fieldSelector": fields} if fields else {})
        for status, text in self._pages(path, query, remaining, allowance, _JSON):
            if status != 200:
                raise self._unusable(path, status, self._read("GET", path, status, text), rights)
            yield text

    def _pages(
        self, path: str, query: dict[str, str], remaining: Remaining, allowance: Allowance | None, accept: str
    ) -> Iterator[tuple[int, bytes]]:
        """Status and body of each page; one that failed is the last. ``allowance`` None: each page has its own."""
        while True:
            status, text = self._call(
                "GET", f"{path}?{urlencode(query)}", remaining, None, allowance, {"Accept": accept}
            )
            yield status, text
            continuation = continuation_of(text) or "" if status == 200 else ""
            if not isinstance(continuation, str) or (continuation and continuation == query.get("continue")):
                # The same page for ever would be no list either.
                raise ClusterUnavailableError(f"GET {path} of {self.name}: metadata.continue leads nowhere")
            if not continuation:
                return
            query["continue"] = continuation
            query.pop("resourceVersion", None)  # that of the first page stands in the continuation

    def served(self, group: str, remaining: Remaining) -> list[str]:
        """The versions of an API group that are served; none where the group is not. Asked until it is known."""
        served = self._served.get(group)
        if not served:  # asked twice where two threads come at once; what one of them forgets is no harm to the other
            served = self._served[group] = self._versions(group, remaining)
        return served

    def _versions(self, group: str, remaining: Remaining) -> list[str]:
        path = f"/apis/{url_quote(group)}"
        status, body = self._ask("GET", path, remaining)
        if status == 404:
            return []
        if status != 200:
            raise self._unusable(path, status, body)
        versions = body.get("versions")
        if not isinstance(versions, list) or not all(isinstance(entry, dict) for entry in versions):
            raise ClusterUnavailableError(f"GET {path} of {self.name}: the answer is no API group")
        return [intern(str(entry.get("version"))) for entry in versions]  # ten thousand servers say the same

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
        """One merge patch, or (``applies``) one server-side apply with force; the object as it is after it.

        Either with a stale ``metadata.resourceVersion`` is answered 409. (A JSON patch with a failing ``test`` would be
        answered 422, like a validation error.)

        Args:
            rights: The files that allow it.
            dry_run: Only whether it would be written: rights, rules and admission are asked.

        Raises:
            ConflictError, ForbiddenError, RejectedError, ClusterUnavailableError
        """
        query, form = (f"{_BY_US}&force=true", _APPLY_PATCH) if applies else (_BY_US, _MERGE_PATCH)
        status, answer = self._ask("PATCH", f"{path}?{query}{'&dryRun=All' if dry_run else ''}", remaining, body, form)
        if status == 200:
            return answer
        if dry_run and status == 400:
            return {}  # some webhook answers no dry runs; what it says of the patch, the patch will tell
        message = self._describe("PATCH", path, status, answer, rights)
        if status in (404, 409):  # gone, or changed, since it was read
            raise ConflictError(message)
        if status == 403:
            raise ForbiddenError(message)
        if 400 <= status < 500:
            raise RejectedError(message)
        raise ClusterUnavailableError(message)

    def get(self, path: str, remaining: Remaining) -> dict[str, Any] | None:
        """One object; None where it is not there or may not be read. Raises ClusterUnavailableError."""
        status, answer = self._ask("GET", path, remaining)
        if status == 200:
            return answer
        if status in (403, 404):
            return None
        raise self._unusable(path, status, answer)

    def create(self, path: str, body: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """One new object, as it is then.

        Raises RejectedError, also where one of that name is there, or ClusterUnavailableError.
        """
        status, answer = self._ask("POST", f"{path}?{_BY_US}", remaining, body)
        if 400 <= status < 500:
            raise RejectedError(self._describe("POST", path, status, answer))
        if status not in (200, 201, 202):
            raise ClusterUnavailableError(self._describe("POST", path, status, answer))
        return answer

    def allows(self, right: Mapping[str, str], remaining: Remaining) -> bool:
        """Whether whoever asks may: verb, group, resource, namespace (empty: all), maybe a name.

        Kubernetes lets everybody who is known ask that. Raises AccessRefusedError, ClusterUnavailableError.
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(right)},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, answer = self._ask("POST", path, remaining, review)
        found = answer.get("status")
        if status not in (200, 201) or not isinstance(found, dict):
            raise self._unusable(path, status, answer, method="POST")
        return found.get("allowed") is True

    def _unusable(
        self, path: str, status: int, body: Mapping[str, Any], rights: str = RIGHTS, method: str = "GET"
    ) -> ClusterUnavailableError:
        """What to raise where something could not be read."""
        kind = AccessRefusedError if status in (401, 403) else ClusterUnavailableError
        return kind(self._describe(method, path, status, body, rights))

    def _describe(self, method: str, path: str, status: int, body: Mapping[str, Any], rights: str = RIGHTS) -> str:
        hint, said = "", str(body.get("message", ""))
        if status == 403 and not said.startswith("admission webhook "):  # that one knows us, and wants it otherwise
            hint = f" (apply {rights}, and map this identity to its group)"
        elif status == 401:
            hint = " (the credential is not accepted, also after a fresh one)"
        message = self._redacted(said)
        return f"{method} {path} of {self.name}: {status} {message}{hint}"

    def _redacted(self, text: str) -> str:
        """What a server or a library says, on one short line; unless it says some of the token, as some proxies do."""
        line = " ".join(text.split())[:300]
        for token in self._tokens_sent:
            size = min(_PART, len(token))
            parts = {token[start : start + size] for start in range(len(token) - size + 1)}
            if any(line[start : start + size] in parts for start in range(len(line))):
                return "(not told: it holds some of the token)"
        return line

    def _ask(
        self,
        method: str,
        path: str,
        remaining: Remaining,
        body: Mapping[str, Any] | None = None,
        form: str = _JSON,
    ) -> tuple[int, dict[str, Any]]:
        """Of one object, or of what is served. ``form``: the content type of the body."""
        headers = _PLAIN if body is None else {**_PLAIN, "Content-Type": form}
        status, text = self._call(method, path, remaining, body, headers=headers)
        return status, self._read(method, path.partition("?")[0], status, text)

    def _call(
        self,
        method: str,
        path: str,
        remaining: Remaining,
        body: Mapping[str, Any] | None = None,
        allowance: Allowance | None = None,
        headers: Mapping[str, str] = _PLAIN,
    ) -> tuple[int, bytes]:
        refused = False
        waits = 0
        fresh = False
        while True:
            sent = self._headers(headers, fresh=fresh)
            status, received, text = self._send(method, path, body, remaining, allowance or Allowance(), sent)
            fresh = status == 401 and not refused and self._credential is not None
            if fresh:
                refused = True
                continue
            if status in (429, 503):
                wait = _retry_after(received)
                if waits < _PATIENCE and remaining() > wait + CONNECT_SECONDS:
                    waits += 1
                    _log.info("%s asks to wait %s s", self.name, wait)
                    self._clock.sleep(wait)
                    continue
                plain = path.partition("?")[0]
                answer = self._read(method, plain, status, text)
                raise ClusterUnavailableError(self._describe(method, plain, status, answer))
            return status, text

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        remaining: Remaining,
        allowance: Allowance,
        headers: dict[str, str],
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request, its answer received to the end, within the time that is left."""
        plain = path.partition("?")[0]
        seconds = min(remaining(), _REQUEST_SECONDS)
        if seconds <= 0:
            raise ClusterUnavailableError(f"{method} {plain} of {self.name}: no time left")
        self.reached = False
        failed: Exception
        try:
            response: Any = self._client.call_api(
                method,
                self._client.configuration.host.rstrip("/") + path,
                header_params=headers,
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
        except ApiException as error:  # of TLS
            reason = str(error.reason).partition("\n")[2]
            failed = ClusterUnavailableError(f"{self.name}: {self._redacted(reason)}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # Where the time is over while the request is being sent, the library wraps the timeout.
            late = any(
                isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError) for cause in (error, *error.args)
            )
            description = self._redacted(f"{type(error).__name__}: {error}")
            if late:
                description = f"not within {seconds:.0f} s ({type(error).__name__})"
            failed = ClusterUnavailableError(f"{self.name} does not answer: {description}")
        else:
            self.reached = True
            return response.status, self._headers_of(response), text
        try:
            raise failed  # out here, where nothing hangs on it that could quote a header
        finally:
            del failed  # it leads to here, and with it to all pages that came before

    def _headers(self, headers: Mapping[str, str], *, fresh: bool) -> dict[str, str]:
        authorization = self._authorization(fresh=fresh)
        ours = {"Authorization": authorization} if authorization else {}
        return {**headers, "Accept-Encoding": "gzip", "User-Agent": _USER_AGENT, **ours}

    def _authorization(self, *, fresh: bool) -> str | None:
        """The header's value; None where a client certificate is used."""
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

    def _read(self, method: str, path: str, status: int, text: bytes) -> dict[str, Any]:
        answer = read_json(text)
        if status == 200 and answer is None:
            raise ClusterUnavailableError(f"{method} {path} of {self.name}: the answer is not JSON")
        return answer if isinstance(answer, dict) else {}


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait; one where the server names none (or a date, which no API server does)."""
    try:
        return max(0.0, float(_header(headers, "retry-after") or "1"))
    except ValueError:
        return 1.0


def _time_of(headers: Mapping[str, str]) -> datetime | None:
    """Return the time at which an answer was received: Date, and Age where a cache kept it. None: it says no time."""
    age = _header(headers, "age").strip()
    try:
        said = parsedate_to_datetime(_header(headers, "date"))
        kept = timedelta(seconds=int(age)) if age.isascii() and age.isdigit() else timedelta(0)
        return (said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)) + kept
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _header(headers: Mapping[str, str], name: str) -> str:
    """Return a header's value, whatever its case; empty where there is none."""
    return next((value for key, value in headers.items() if key.lower() == name), "")


def described_right(right: Mapping[str, str]) -> str:
    """A right that is missing, in words."""
    resource = f"{right['resource']}.{right['group']}" if right["group"] else right["resource"]
    where = f" in namespace {right['namespace']}" if right["namespace"] else ""
    return f"it may not {right['verb']} {resource}{where}"
