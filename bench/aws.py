"""A stand-in for the AWS services of checks and runs, from memory: ten times as fast as moto's server.

DynamoDB: conditions, transactions, pages, order of keys. SQS: deduplication. It checks no signature, right or schema,
and keeps a message's delay as data. The store's suite runs against it too (tests/integration/test_store.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from math import ceil
from types import CodeType
from typing import Any

Item = dict[str, dict[str, Any]]
Request = dict[str, Any]
_PAGE = 2**20
_KIB = 1024
_OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class RefusedError(Exception):
    """An error answer of AWS: its code, and more fields of its body."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.body = {"__type": code, "message": code} | more


@cache
def _compiled(expression: str) -> CodeType:
    """Translate a condition into Python whose names are functions of ``_holds``."""
    text = re.sub(r"(\S+) BETWEEN (\S+) AND (\S+)", r"\1 >= \2 AND \1 <= \3", expression)
    text = re.sub(r"(#?\w+) *(<=|>=|[<>=]) *(:\w+)", r"compare('\1', '\2', '\3')", text)
    text = re.sub(r"(attribute_\w+|begins_with) *\( *(#?\w+)(?: *, *(:\w+))? *\)", r"\1('\2', '\3')", text)
    return compile(re.sub(r"\b(AND|OR|NOT) ", lambda found: found[0].lower(), text), "<condition>", "eval")


def _holds(expression: str, request: Request, item: Item) -> bool:
    """Evaluate a condition or key condition on an item."""
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})

    def attribute(name: str) -> dict[str, Any] | None:
        return item.get(names.get(name, name))

    def compare(name: str, sign: str, value: str) -> bool:
        ours, other = attribute(name), values[value]
        return ours is not None and set(ours) == set(other) and _OPERATORS[sign](_comparable(ours), _comparable(other))

    functions = {
        "attribute_exists": lambda name, _: attribute(name) is not None,
        "attribute_not_exists": lambda name, _: attribute(name) is None,
        "attribute_type": lambda name, kind: {values[kind]["S"]} == set(attribute(name) or ()),
        "begins_with": lambda name, value: str((attribute(name) or {}).get("S", "")).startswith(values[value]["S"]),
        "compare": compare,
    }
    return bool(eval(_compiled(expression), {"__builtins__": {}}, functions))


def _comparable(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return float(content) if kind == "N" else content.encode() if kind == "S" else content


def _size(item: Item) -> int:
    return sum(len(name) + len(str(content)) for name, value in item.items() for content in value.values())


class Table:
    """One DynamoDB table with the keys ``pk`` and ``sk``, and one index, of its attribute ``due``."""

    def __init__(self, used: Counter[str]) -> None:
        self._items: dict[str, dict[str, Item]] = defaultdict(dict)
        self._used = used

    def put(self, item: Item) -> None:
        """Store an item, as another writer does."""
        self._items[item["pk"]["S"]][item["sk"]["S"]] = item

    def _stored(self, key: Item) -> Item:
        return self._items.get(key["pk"]["S"], {}).get(key["sk"]["S"], {})

    def _check(self, request: Request, key: Item) -> Item:
        before = self._stored(key)
        text = request.get("ConditionExpression")
        if text and not _holds(text, request, before):
            quote = {"Item": before} if before and "ReturnValuesOnConditionCheckFailure" in request else {}
            raise RefusedError("ConditionalCheckFailedException", **quote)
        return before

    def _wrote(self, item: Item, times: int = 1) -> None:
        self._used["write units"] += times * max(1, ceil(_size(item) / _KIB))

    def get_item(self, request: Request) -> Request:
        """Return an item by its key, or an empty answer if it does not exist."""
        item = self._stored(request["Key"])
        self._read(request, _size(item))
        return {"Item": item} if item else {}

    def batch_get_item(self, request: Request) -> Request:
        """Return those items of the keys that exist."""
        ((name, keys),) = request["RequestItems"].items()
        items = [self._stored(key) for key in keys["Keys"]]
        for item in items:
            self._read(keys, _size(item))
        return {"Responses": {name: [item for item in items if item]}, "UnprocessedKeys": {}}

    def put_item(self, request: Request) -> Request:
        """Store an item if the condition holds; else raise RefusedError."""
        item = request["Item"]
        self._check(request, item)
        self._wrote(item)
        self.put(item)
        return {}

    def delete_item(self, request: Request) -> Request:
        """Delete an item if the condition holds; else raise RefusedError."""
        self._wrote(self._check(request, request["Key"]))
        self._drop(request["Key"])
        return {}

    def _drop(self, key: Item) -> None:
        self._items.get(key["pk"]["S"], {}).pop(key["sk"]["S"], None)

    def update_item(self, request: Request) -> Request:
        """Update an item if the condition holds; else raise RefusedError."""
        self._check(request, request["Key"])
        self._wrote(self._updated(request))
        return {}

    def _updated(self, request: Request) -> Item:
        after = dict(self._stored(request["Key"])) | request["Key"]
        names = request.get("ExpressionAttributeNames", {})
        sets, _, removes = f" {request['UpdateExpression']}".partition(" REMOVE ")
        for part in filter(None, sets.removeprefix(" SET ").split(",")):
            name, _, value = (text.strip() for text in part.partition("="))
            after[names.get(name, name)] = request["ExpressionAttributeValues"][value]
        for name in filter(None, (text.strip() for text in removes.split(","))):
            after.pop(names.get(name, name), None)
        self.put(after)
        return after

    def transact_write_items(self, request: Request) -> Request:
        """Perform all writes if every condition holds; else raise RefusedError and write none."""
        writes = [write for entry in request["TransactItems"] for write in entry.values()]
        reasons = []
        for write in writes:
            try:
                self._check(write, write.get("Item") or write["Key"])
                reasons.append({"Code": "None"})
            except RefusedError:
                reasons.append({"Code": "ConditionalCheckFailed"})
        if any(reason["Code"] != "None" for reason in reasons):
            raise RefusedError("TransactionCanceledException", CancellationReasons=reasons)
        for write in writes:
            if "Item" in write:
                self._wrote(write["Item"], times=2)
                self.put(write["Item"])
            elif "UpdateExpression" in write:
                self._wrote(self._updated(write), times=2)
            else:
                self._wrote(self._stored(write["Key"]), times=2)
                self._drop(write["Key"])
        return {}

    def query(self, request: Request) -> Request:
        """Return a page of the items that meet the key condition, from the table or its index."""
        values = request["ExpressionAttributeValues"]
        if "IndexName" in request:
            every = (item for items in self._items.values() for item in items.values())
            items = [item for item in every if item.get("due") == values[":due"]]
            items.sort(key=lambda item: item["pk"]["S"])
        else:
            items = [item for _, item in sorted(self._items.get(values[":pk"]["S"], {}).items())]
        text = request["KeyConditionExpression"]
        items = [item for item in items if _holds(text, request, item)]
        if not request.get("ScanIndexForward", True):
            items.reverse()
        if start := request.get("ExclusiveStartKey"):
            place = next(i for i, item in enumerate(items) if item["sk"] == start["sk"] and item["pk"] == start["pk"])
            items = items[place + 1 :]
        page, size = [], 0
        for item in items:
            if len(page) == request.get("Limit", len(items)) or size > _PAGE:
                break
            page.append(item)
            size += _size(item)
        self._read(request, size)
        last = {"LastEvaluatedKey": {key: page[-1][key] for key in ("pk", "sk")}} if len(page) < len(items) else {}
        return {"Items": page, "Count": len(page), "ScannedCount": len(page)} | last

    def _read(self, request: Request, size: int) -> None:
        """Count half units: an eventually consistent read of 4 KiB costs one."""
        self._used["half read units"] += max(1, ceil(size / (4 * _KIB))) * (1 + bool(request.get("ConsistentRead")))


def _named(request: Request) -> str:
    """Return the name of a request's table."""
    if batch := request.get("RequestItems"):
        return str(next(iter(batch)))
    (write,) = request["TransactItems"][0].values() if "TransactItems" in request else (request,)
    return str(write["TableName"])


class Aws:
    """Tables, queues, bus and secrets of one stack. ``secret``: the text of a secret, by its name."""

    def __init__(self, secret: Callable[[str], str]) -> None:
        self.used: Counter[str] = Counter()
        self.tables: dict[str, Table] = defaultdict(lambda: Table(self.used))
        self.queues: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._secret = secret
        self._numbers = itertools.count()
        self._seen: set[tuple[str, ...]] = set()

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of a request with this ``X-Amz-Target``."""
        if not target:  # S3 or SNS, of which nothing is kept
            self.used["other"] += 1
            return 200, b"<Response><PublishResult/></Response>"
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", target.rpartition(".")[2]).lower()
        self.used[name] += 1
        try:
            request = json.loads(body)
            service = self.tables[_named(request)] if target.startswith("DynamoDB") else self
            return 200, json.dumps(getattr(service, name)(request)).encode()
        except RefusedError as error:
            return 400, json.dumps(error.body).encode()

    def get_secret_value(self, request: Request) -> Request:
        """Return the text of a secret."""
        name = request["SecretId"]
        return {"Name": name, "SecretString": self._secret(name), "VersionId": "1" * 32}

    def send_message(self, request: Request) -> Request:
        """Queue a message unless it is a duplicate, and return an id."""
        queue = request["QueueUrl"].rpartition("/")[2]
        identity = (queue, request.get("MessageGroupId", ""), request.get("MessageDeduplicationId", ""))
        number = str(next(self._numbers))
        if not identity[2] or identity not in self._seen:
            self._seen.add(identity)
            message = {"body": request["MessageBody"], "delay": request.get("DelaySeconds", 0), "group": identity[1]}
            self.queues[queue].append(message | {"id": number, "sent": time.monotonic()})
        return {"MessageId": number, "MD5OfMessageBody": hashlib.md5(request["MessageBody"].encode()).hexdigest()}

    def send_message_batch(self, request: Request) -> Request:
        """Queue several messages, and return an id for each."""
        sent = [self.send_message({"QueueUrl": request["QueueUrl"], **entry}) for entry in request["Entries"]]
        return {"Successful": [{"Id": e["Id"], **s} for e, s in zip(request["Entries"], sent, strict=True)]}

    def change_message_visibility(self, _request: Request) -> Request:
        """Return an empty answer: the request has no effect."""
        return {}

    def put_events(self, request: Request) -> Request:
        """Return an answer that accepts all events; none is stored."""
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"} for _ in request["Entries"]]}

    def control(self, command: Request) -> Request:
        """Take a queue's messages, or plant items and return the counts since the last call."""
        if "take" in command:
            return {"messages": self.queues.pop(command["take"], [])}
        for item in command.get("plant", ()):
            self.tables["bench"].put(item)
        used = dict(self.used)
        self.used.clear()
        return used
