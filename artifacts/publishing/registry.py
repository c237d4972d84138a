"""One repository of a registry. The oras library gives the session, credentials and tokens."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests
from oras.container import Container
from oras.logger import logger
from oras.provider import Registry as OrasRegistry
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from dfc.artifacts.paths import printable
from dfc.artifacts.publishing.errors import ConnectionCutError, PublishingError
from dfc.artifacts.publishing.oci_manifest import MAX_BYTES, MEDIA_TYPE
from dfc.artifacts.publishing.reference import Reference

_CONNECT_SECONDS, _READ_SECONDS = 15, 300
_BLOCK_BYTES = 1 << 20
_MAX_ERROR_BYTES = 64 << 10

Sent = Callable[[int], None]
"""Called with the bytes that were sent since the call before."""


class Repository:
    """Blobs and manifests of one repository; what fails is a `PublishingError`."""

    def __init__(self, reference: Reference, *, plain_http: bool = False) -> None:
        # Its messages would stand beside the one sentence that a failure is.
        logger.set_level(logging.CRITICAL + 1)
        self._reference = reference
        self._root = f"{'http' if plain_http else 'https'}://{reference.host}/v2/"
        self._base = f"{self._root}{reference.repository}"
        self._client = self._connect("token", plain_http)
        challenge = self._probe()
        if challenge.lower().startswith("basic"):
            self._client = self._connect("basic", plain_http)
            self._basic_login()

    def has_blob(self, digest: str) -> bool:
        """Return whether the repository has this content."""
        return self._request("HEAD", f"{self._base}/blobs/{digest}", {200, 404}).status_code == 200

    def put_blob(self, digest: str, size: int, content: "Path | bytes", sent: Sent) -> None:
        """Send content that the registry checks against `digest`; a file is never in memory as a whole."""
        answer = self._request("POST", f"{self._base}/blobs/uploads/", {202})
        location = urljoin(self._base, answer.headers.get("Location", ""))
        url = f"{location}{'&' if '?' in location else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream"}
        self._request("PUT", url, {201, 202, 204}, headers, _Body(content, size, sent))

    def put_manifest(self, name: str, text: bytes) -> None:
        """Store a manifest under a tag."""
        self._request("PUT", f"{self._base}/manifests/{name}", {201, 202}, {"Content-Type": MEDIA_TYPE}, text)

    def manifest(self, name: str) -> bytes:
        """Return the manifest of a tag or digest, unchecked."""
        answer = self._request("GET", f"{self._base}/manifests/{name}", {200}, {"Accept": MEDIA_TYPE})
        text = bytearray()
        for block in _blocks(answer, str(self._reference)):
            text += block
            if len(text) > MAX_BYTES:
                answer.close()
                raise PublishingError(f"{self._reference} is refused: its manifest has more than {MAX_BYTES} bytes")
        return bytes(text)

    def blob(self, digest: str, start: int) -> tuple[int, Iterator[bytes]]:
        """Return content from byte `start` on, unchecked, and where it really starts: 0 where ranges are unknown."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self._request("GET", f"{self._base}/blobs/{digest}", {200, 206}, headers)
        if answer.status_code == 200:
            start = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise PublishingError(f"{self._reference.host} sends another part of {digest} than the one asked for")
        return start, _blocks(answer, str(self._reference))

    def _connect(self, backend: str, plain_http: bool) -> Any:
        client: Any = OrasRegistry(self._reference.host, insecure=plain_http, auth_backend=backend)
        for prefix in ("http://", "https://"):
            client.session.mount(prefix, _Adapter(max_retries=Retry(total=2, backoff_factor=0.5, redirect=5)))
        container = Container(f"{self._reference.host}/{self._reference.repository}")
        container.registry = self._reference.host
        try:
            client.auth.load_configs(container)
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise PublishingError(f"the registry logins of docker cannot be read: {printable(str(error))}") from None
        return client

    def _probe(self) -> str:
        """Return what the registry asks for from someone unknown, nothing when it lets them in."""
        try:
            answer = self._client.session.get(self._root, stream=True)
        except requests.RequestException as error:
            raise self._unreachable(error) from None
        answer.close()
        challenge = answer.headers.get("Www-Authenticate", "") if answer.status_code == 401 else ""
        return str(challenge)

    def _basic_login(self) -> None:
        if not getattr(self._client.auth, "_basic_auth", None):
            raise self._no_login()
        self._client.session.headers.update(self._client.auth.get_auth_header())

    def _request(
        self,
        method: str,
        url: str,
        expected: set[int],
        headers: dict[str, str] | None = None,
        body: "bytes | _Body | None" = None,
    ) -> requests.Response:
        try:
            answer = self._authorised(method, url, headers, body)
            if answer.status_code == 401 and getattr(self._client.auth, "token", None):
                # The library keeps a token that is too old or for reading only.
                self._client.auth.token = None
                answer = self._authorised(method, url, headers, body)
        except requests.RequestException as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise self._no_login() from None
        if answer.status_code in expected:
            return answer
        if answer.status_code == 401:
            raise self._no_login()
        raise PublishingError(self._refused(answer))

    def _authorised(
        self, method: str, url: str, headers: dict[str, str] | None, body: "bytes | _Body | None"
    ) -> requests.Response:
        # Without the library's own repetition, which sleeps for minutes when nobody listens.
        once = OrasRegistry.do_request.__wrapped__
        # What a server compresses on its way could not be counted, nor continued.
        wanted = {"Accept-Encoding": "identity", **(headers or {})}
        answer: requests.Response = once(self._client, url, method, data=body, headers=wanted, stream=True)
        return answer

    def _no_login(self) -> PublishingError:
        return PublishingError(f"{self._reference.host} wants a login for {self._reference}; use 'docker login'")

    def _refused(self, answer: requests.Response) -> str:
        if answer.status_code == 404:
            return f"{self._reference} is not there: {self._reference.host} does not know it, or not all of it"
        try:
            text = answer.raw.read(_MAX_ERROR_BYTES, decode_content=True)
            reason = json.loads(text)["errors"][0]["message"]
        except (HTTPError, ValueError, LookupError, TypeError, RecursionError):
            reason = answer.reason
        return f"{self._reference.host} refuses {self._reference}: {answer.status_code} {printable(str(reason))}"

    def _unreachable(self, error: requests.RequestException) -> PublishingError:
        if isinstance(error, requests.exceptions.SSLError):
            reason = "TLS fails; a registry of this machine may need --plain-http"
        elif isinstance(error, requests.Timeout):
            reason = "it does not answer"
        else:
            reason = "the connection is refused or was cut"
        return ConnectionCutError(
            f"cannot talk to {self._reference.host}: {reason}; the same command goes on from here"
        )


class _Adapter(HTTPAdapter):
    """Gives every request a limit of time, which neither library sets."""

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or (_CONNECT_SECONDS, _READ_SECONDS)
        return super().send(*arguments, **options)


class _Body:
    """The content of one upload, from its start each time a request is made again."""

    def __init__(self, content: Path | bytes, size: int, sent: Sent) -> None:
        self._content, self._size, self._sent = content, size, sent

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        if isinstance(self._content, bytes):
            yield self._content
            return
        with self._content.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
                self._sent(len(block))


def _blocks(answer: requests.Response, source: str) -> Iterator[bytes]:
    try:
        yield from answer.raw.stream(_BLOCK_BYTES, decode_content=False)
    except (HTTPError, OSError):
        raise ConnectionCutError(
            f"the connection was cut while {source} came; the same command goes on from here"
        ) from None
    finally:
        answer.close()
