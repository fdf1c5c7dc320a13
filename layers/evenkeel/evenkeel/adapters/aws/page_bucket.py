"""A bucket that a page is put into, for whoever may read there."""

import re
from collections.abc import Callable
from typing import Any

from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, text_of
from evenkeel.validation import ConfigError

_PLACE = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", re.ASCII)


class BucketShelf:
    """One object of a bucket, replaced each time. ``client`` makes S3's when it is first needed."""

    def __init__(self, client: Callable[[], Any], place: str) -> None:
        """Raises ConfigError where the place is not s3://BUCKET/KEY."""
        found = _PLACE.fullmatch(place)
        if found is None or found[2].endswith("/"):
            raise ConfigError([f"{place or 'an empty text'} is no place for a page: say s3://BUCKET/KEY.html"])
        self._client, self._place = client, place
        self._bucket, self._key = found.groups()

    def put(self, html: str) -> None:
        """Raises AccessError: who may not write there, or finds no such bucket."""
        try:
            self._client().put_object(
                Bucket=self._bucket,
                Key=self._key,
                # Half a surrogate pair, which JSON can say and UTF-8 cannot, becomes a question mark.
                Body=html.encode(errors="replace"),
                ContentType="text/html; charset=utf-8",
                CacheControl="no-cache",
            )
        except AWS_ERRORS as error:
            raise access_error(error)(f"{self._place} cannot be written: {text_of(error)}") from None
