"""A store on a table in a process of its own (``bench.aws``), and how often the table was asked for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import botocore.session
from botocore.config import Config

from bench.fleet import stand_in_for_aws
from evenkeel.adapters.aws.store import DynamoStore


@contextmanager
def counted_store() -> Iterator[tuple[DynamoStore, Counter[str]]]:
    """Whoever measures clears the counts first: what fills the table is counted, too."""
    asked: Counter[str] = Counter()
    with stand_in_for_aws() as url:
        access = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench", "region_name": "eu-central-1"}
        session, config = botocore.session.get_session(), Config(max_pool_connections=50)
        client = session.create_client("dynamodb", endpoint_url=url, config=config, **access)
        client.meta.events.register("before-call.dynamodb", lambda model, **_: asked.update([model.name]))
        yield DynamoStore(client, "bench"), asked


def counts_in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
