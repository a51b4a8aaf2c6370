"""Why a policy server cannot be reached, whether it can still come up, and the remedy."""

import re
import socket
import ssl
from urllib.parse import urljoin, urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import Close

from contracts.redaction import strip_url

MAX_ANSWER_MIB = 64
_REFUSED, _OF_SERVERS, _TOO_BIG = (1002, 1003, 1007, 1008, 1010), 4000, 1009
"""Close codes (RFC 6455): for a refused client, from where servers define theirs, and for too much data."""
_LATER = (408, 425, 429)
"""Of the HTTP statuses that refuse a request, those that want it again."""
_PROBE_S = 2.0


def refusal_of(error: Exception, url: str) -> str | None:
    """Why every attempt would fail in the same way, and the remedy; None if the server may still come up."""
    other = "wss" if urlsplit(url).scheme == "ws" else "ws"
    instead = f"{other}://{strip_url(url).partition('://')[2]}"
    why = None
    match error:
        case ssl.SSLCertVerificationError():
            why = (
                f"has a certificate that is not accepted: {error.verify_message}. Give the name that the "
                "certificate is for, or set SSL_CERT_FILE to a file with the certificate of its authority"
            )
        case ssl.SSLError():
            why = f"does not answer with TLS ({error.reason or error}): give {instead} if it has none"
        case InvalidStatus(response=response):
            why = _refusal_by_status(response.status_code, url, response.headers.get("Location"))
        case ConnectionClosed(rcvd=Close(code=code)) if code in _REFUSED or code >= _OF_SERVERS:
            why = ending_of(error)
        case InvalidHandshake(__cause__=EOFError()):  # also what a proxy does whose server is not up yet
            if other == "wss" and _speaks_tls(url):
                why = f"needs TLS: give {instead}"
        case InvalidHandshake() if status := re.search(r"HTTP/1\.0 (\d{3})", str(error.__cause__)):
            why = _refusal_by_status(int(status[1]), url)
        case InvalidHandshake():
            why = f"does not speak WebSocket: {reason_of(error)}; if it needs TLS, give {instead}"
    return why


def reason_of(error: Exception) -> str:
    """The reason why an attempt failed, in words."""
    if isinstance(error, ConnectionClosed):
        return f"it {ending_of(error)}"
    if isinstance(error, InvalidStatus):
        return f"HTTP status {error.response.status_code}"
    cause = error.__cause__ if isinstance(error, InvalidHandshake) else None
    return f"{str(error) or type(error).__name__}{f' ({cause})' if cause else ''}"


def ending_of(error: ConnectionClosed) -> str:
    """How a server ended a connection, in words."""
    if error.sent is not None and error.sent.code == _TOO_BIG:
        return f"sent more than {MAX_ANSWER_MIB} MiB in one message"
    if error.rcvd is None:
        return f"broke off the connection ({error.__cause__ or error})"
    return f"closed the connection ({error.rcvd})"


def port_hint(url: str) -> str:
    """What to try if a URL has no port; empty if it has one."""
    parts = urlsplit(url)
    if parts.port is not None:
        return ""
    return f". The address has no port; openpi's servers listen at {parts.scheme}://{parts.hostname}:8000"


def _refusal_by_status(status: int, url: str, location: str | None = None) -> str | None:
    if status in _LATER or status >= 500:
        return None
    why = f"refuses the connection with HTTP status {status}"
    if status in (401, 403):
        why += "; give a key with --policy-kwargs api_key_env=NAME, or user and password in the address"
    elif status == 404:
        why += "; give a path that it serves"
    elif 300 <= status < 400:
        target = re.sub("^http", "ws", urljoin(re.sub("^ws", "http", url), location or ""))
        why = f"has moved (HTTP status {status}); give {target if location else 'its new address'}"
    elif status < 400:
        why = f"answers with HTTP status {status}, not as a WebSocket; give the URL of a policy server"
    return why + port_hint(url)


def _speaks_tls(url: str) -> bool:
    parts, context = urlsplit(url), ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), _PROBE_S) as plain:
            context.wrap_socket(plain, server_hostname=parts.hostname).close()
    except OSError:
        return False
    return True
