"""Reads the answers of an API server, up to a limit of size, which applies to the decompressed answer."""

import ssl
import zlib

import urllib3
from urllib3.util.ssl_ import create_urllib3_context

# The limit of all pages of a list, in bytes. It allows about 18,000 node groups of the sandbox, with 3.5 KB and 162
# values each.
MOST_BYTES = 64 * 2**20
# The limit of all lists of a cluster that is checked in parallel with up to fifty others, in bytes. It allows about 600
# node groups.
MOST_BYTES_BESIDE_OTHERS = 4 * 2**20
# The memory per byte of JSON varies by a factor of thirty, so the number of values has a limit, too. This number of
# values needs up to 300 MB of the function's 512 MB.
MOST_VALUES = 3_000_000
_CHUNK = 2**16


class UnusableAnswerError(Exception):
    """An answer that is too large, or not compressed as requested."""


class TooMuchError(UnusableAnswerError):
    """An answer that exceeds its allowance."""


class Allowance:
    """The number of bytes and of values that may still be received, for one list or for several lists."""

    def __init__(self, size: int = MOST_BYTES, values: int = MOST_VALUES) -> None:
        self._size, self._values = size, values
        self.size_left, self._values_left = size, values
        # A value needs at least two bytes, one of them for a separator. So a low limit of bytes also limits the values.
        self._is_counted = size > 2 * values
        self._uncounted: list[bytes] = []  # the first pieces, which may not have enough bytes for too many values

    def take(self, piece: bytes) -> None:
        """Subtract a piece of an answer. Raises TooMuchError where the allowance is exceeded."""
        self.size_left -= len(piece)
        if self.size_left < 0:
            raise TooMuchError(f"it is larger than {self._size // 2**20} MiB")
        if not self._is_counted:
            return
        self._uncounted.append(piece)
        if self._size - self.size_left <= self._values:
            return
        # In JSON, one of these characters precedes each value or its name. Only the outermost value has no such
        # character.
        self._values_left -= sum(len(piece) - len(piece.translate(None, b",[{")) for piece in self._uncounted)
        self._uncounted.clear()
        if self._values_left < 0:
            raise TooMuchError(f"it holds more than {self._values} values")


def read_body(response: urllib3.BaseHTTPResponse, allowance: Allowance) -> bytes:
    """Return the body. It is decompressed piece by piece, and never beyond the allowance.

    Raises:
        UnusableAnswerError: the body is too large, or compressed by another method than gzip.
        urllib3.exceptions.HTTPError: the connection broke, or timed out.
    """
    pieces: list[bytes] = []
    try:
        packed = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packed not in ("gzip", "identity", ""):
            raise UnusableAnswerError("it is packed otherwise than with gzip")
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed == "gzip" else None
        while chunk := response.read(_CHUNK, decode_content=False):
            while chunk:
                piece = chunk if unpack is None else unpack.decompress(chunk, _CHUNK)
                chunk = b"" if unpack is None else unpack.unconsumed_tail
                allowance.take(piece)
                pieces.append(piece)
        if unpack is not None and pieces and not unpack.eof:
            raise UnusableAnswerError("it breaks off")
        response.release_conn()
    except zlib.error:
        response.close()
        raise UnusableAnswerError("it is not packed as it says") from None
    except BaseException:
        response.close()
        raise
    return b"".join(pieces)


def tls_context(ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only this authority. Raises ssl.SSLError or ValueError where it is not valid."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.check_hostname = True
    context.load_verify_locations(cadata=ca)
    return context
