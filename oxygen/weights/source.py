"""Resolves a checkpoint source to a local path: a path, a bundled checkpoint, or a cached URL."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from configs.errors import UsageError, unknown
from configs.paths import cache_folder
from oxygen.weights import download

CACHE_VARIABLE = "OXYGEN_CACHE"
BUNDLED = "bundled"
"""The scheme of checkpoints that ship with the package: `bundled://tiny`."""
SCHEMES = ("gs", "https", "http", BUNDLED)


def fetch(source: str | Path) -> Path:
    """Return the local path of a source, downloaded if necessary.

    Args:
        source: A path; `bundled://NAME`; the URL of a file; or the `gs://` URL of a public folder.
            Training state beside the parameters is not downloaded.

    Raises:
        UsageError: The URL's scheme is unknown, it cannot be downloaded, or a checksum differs.
    """
    text = str(source)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text).expanduser()
    if scheme not in SCHEMES:
        raise unknown("kind of URL", scheme, SCHEMES, remedy="Local files have no scheme.")
    if scheme == BUNDLED:
        return bundled(text.removeprefix(f"{BUNDLED}://"))
    target = cached(text)
    download.complete(text, target)
    return target


def bundled(name: str) -> Path:
    """The folder of a bundled checkpoint, which may not exist."""
    return Path(__file__).parents[1] / "assets" / name


def cached(url: str) -> Path:
    """The path of a URL in the cache, which may not exist."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url} is no URL: {error}") from None
    if not parts.netloc or not parts.path.strip("/"):
        raise UsageError(f"{url} names no file or folder")
    below = [quote(part, safe="") for part in parts.path.strip("/").split("/")]
    if parts.query:
        below[-1] = quote(f"?{parts.query}", safe="") + below[-1]  # the suffix stays last
    if any(part in (".", "..", "") for part in below):
        raise UsageError(f"{url} is not a plain path: it has an empty part, '.' or '..'")
    return cache_folder(CACHE_VARIABLE, "checkpoints").joinpath(
        parts.scheme, quote(parts.netloc, safe=""), *below
    )
