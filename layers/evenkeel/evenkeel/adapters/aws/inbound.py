"""Reads inbound events with the parser of their source. An unusable event becomes ``Ignored`` and raises no error."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from evenkeel.adapters.aws import sources
from evenkeel.adapters.aws.signals import Parser, ignored, one_line
from evenkeel.application.rebalancing.events import Ignored, InboundEvent, Sender
from evenkeel.domain.model.values import quote
from evenkeel.validation import ConfigError

# In bytes. The events of all known sources are far smaller.
LARGEST_EVENT = 256 * 1024


def _parser(source: str, detail_type: str) -> Parser | None:
    for (its_source, its_detail_type), parser in sources.ROWS.items():
        if fnmatchcase(source, its_source) and fnmatchcase(detail_type, its_detail_type):
            return parser
    return None


def read_event(event: object, account: str | None = None) -> InboundEvent:
    """Return the failure, zone shift or request for nodes in an event, or why the event is ignored. Never raises.

    ``account``: the function's own AWS account; None: it is unknown, so accounts are not compared. A cluster's record
    names the accounts whose events are accepted. AWS writes the sender's account into each event.
    """
    if not isinstance(event, Mapping):
        return ignored("malformed", "event: not an object")
    try:
        size = len(json.dumps(event))
    except (TypeError, ValueError, RecursionError):
        return ignored("malformed", "event: nested too deeply, or not JSON")
    if size > LARGEST_EVENT:
        return ignored("oversized", f"event: {size} bytes; an event has at most {LARGEST_EVENT}")
    source, detail_type = str(event.get("source")), str(event.get("detail-type"))
    parser = _parser(source, detail_type)
    if parser is None:
        reason = f"event: no parser for source {quote(source)} and detail-type {quote(detail_type)}"
        return ignored("unknown shape", reason)
    try:
        inbound = parser(event)
    except ConfigError as error:
        return ignored("malformed", str(error))
    if account is None or isinstance(inbound, Ignored):
        return inbound
    return replace(inbound, sender=Sender(account=one_line(str(event.get("account")), 64), stack=account))


def account_of(context: Any) -> str | None:
    """Return the account of the function, from Lambda's context; None outside Lambda."""
    parts = str(getattr(context, "invoked_function_arn", "")).split(":")
    return parts[4] if len(parts) > 4 and re.fullmatch(r"[0-9]{12}", parts[4]) else None
