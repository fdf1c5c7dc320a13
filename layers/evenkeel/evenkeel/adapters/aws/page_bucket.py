"""Stores the status page as an S3 object."""

import re
from collections.abc import Callable
from typing import Any

from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, text_of
from evenkeel.validation import ConfigError

_PLACE = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", re.ASCII)


class S3PageStore:
    """One object of a bucket, which every new page replaces. ``client`` returns the S3 client."""

    def __init__(self, client: Callable[[], Any], place: str) -> None:
        """Raises ConfigError if the place is not s3://BUCKET/KEY."""
        match = _PLACE.fullmatch(place)
        if match is None or match[2].endswith("/"):
            raise ConfigError([f"{place or 'an empty text'} is no place for a page: say s3://BUCKET/KEY.html"])
        self._client, self._place = client, place
        self._bucket, self._key = match.groups()

    def put(self, html: str) -> None:
        """Replace the page. Raises AccessError if the role may not write, or the bucket does not exist."""
        try:
            self._client().put_object(
                Bucket=self._bucket,
                Key=self._key,
                # Half a surrogate pair is valid in JSON but not in UTF-8, so it is replaced by a question mark.
                Body=html.encode(errors="replace"),
                ContentType="text/html; charset=utf-8",
                CacheControl="no-cache",
            )
        except AWS_ERRORS as error:
            raise access_error(error)(f"{self._place} cannot be written: {text_of(error)}") from None
