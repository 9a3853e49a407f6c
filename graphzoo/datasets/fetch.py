"""Find the files of a data set, or fetch them: resumable, verified before they take their name, once per
machine.

Standard library and filelock only, so that a login node can fetch without the rest.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import math
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from graphzoo import __version__
from graphzoo.datasets.errors import DownloadError
from graphzoo.datasets.roots import cache_root, data_root, is_offline
from graphzoo.datasets.table import FileFacts, KGSource, content_hash, find_source

__all__ = ["download", "provide"]

_log = logging.getLogger(__name__)
_SPLITS = ("train", "valid", "test")
_CHUNK = 1 << 18
# seconds without a byte, rounds over all addresses, seconds before the second round (doubled each time)
_TIMEOUT = 30.0
_ROUNDS = 4
_BACKOFF = 1.0
_LOCK_TIMEOUT = 3600.0


class _Refused(Exception):
    """This address will not give the file; the next one may."""


class _Broken(Exception):
    """The transfer broke off or carried wrong bytes; the same address may do better."""


def download(name: str, root: str | os.PathLike[str] | None = None) -> Path:
    """Fetch every missing file of a data set now, for instance on a login node.

    Args:
        name: See `list_knowledge_graphs`.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.

    Returns:
        The folder that holds the files (of the training graph for an inductive pair).

    Raises:
        ValueError: unknown name.
        DownloadError: a file can neither be found nor fetched.
    """
    source = find_source(name)
    if source.embedded:
        return Path(__file__).resolve().parent.parent / "data" / source.name
    if source.inductive is not None:
        provide(source, source.inductive, root=root)
    return provide(source, source.folder, root=root)["train"].parent


def provide(
    source: KGSource,
    folder: str,
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
) -> dict[str, Path]:
    """The three files of a folder of the table, fetched if need be.

    Looks below the data root, then below the user's cache folder, which also takes the files when the root is
    read-only. With GRAPHZOO_MIRROR=URL the address `URL/kg/<folder>/<split>.txt` is tried before all others.

    Args:
        source: Row of the table.
        folder: Its folder (or that of its inductive graph).
        root: Data root, see `data_root`.
        download: Whether to fetch; None means yes unless GRAPHZOO_OFFLINE is set.

    Returns:
        Path of train, valid and test.

    Raises:
        DownloadError: with the addresses, the path for the file, and what went wrong.
    """
    preferred = data_root(root) / "kg" / folder
    places = list(dict.fromkeys([preferred, cache_root() / "data" / "kg" / folder]))
    found = _find(places)
    missing = [split for split in _SPLITS if split not in found]
    if not missing:
        return found
    urls = _addresses(source, folder)
    if not urls:
        raise DownloadError(_remedy(source, preferred, missing, [], "there is no public file of this layout"))
    if is_offline() or download is False:
        reason = "GRAPHZOO_OFFLINE is set" if is_offline() else "downloads are switched off (download=False)"
        raise DownloadError(_remedy(source, preferred, missing, urls, reason))
    target = next((place for place in places if _is_writable(place)), None)
    if target is None:
        raise DownloadError(_remedy(source, preferred, missing, urls, "neither folder is writable"))
    target.mkdir(parents=True, exist_ok=True)
    with _locked(target / ".download.lock"):
        # another process may have fetched everything while this one waited
        found = _find(places)
        missing = [split for split in _SPLITS if split not in found]
        if missing:
            total = sum(source.file(split, folder).num_bytes for split in missing)
            size = f", about {_human(total)}" if total else ""
            _say(f"graphzoo: fetching {source.name} ({', '.join(missing)}{size}) into {target}")
        for split in missing:
            path = target / f"{split}.txt"
            try:
                _fetch(
                    [url.format(split=split) for url in urls], path, source.file(split, folder), source, split
                )
            except DownloadError as error:
                raise DownloadError(_remedy(source, preferred, [split], urls, str(error))) from error
            found[split] = path
    return found


def _find(places: list[Path]) -> dict[str, Path]:
    found = {}
    for split in _SPLITS:
        candidates = [place / f"{split}{suffix}" for place in places for suffix in (".txt", ".txt.gz")]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            found[split] = path
    return found


def _addresses(source: KGSource, folder: str) -> list[str]:
    urls = list(source.inductive_urls if folder == source.inductive else source.urls)
    mirror = os.environ.get("GRAPHZOO_MIRROR", "").rstrip("/")
    return [*([f"{mirror}/kg/{folder}/{{split}}.txt"] if mirror else []), *urls]


def _remedy(source: KGSource, folder: Path, splits: list[str], urls: list[str], reason: str) -> str:
    """At most six lines: what is missing, why, where to get it, where to put it."""
    missing = ", ".join(f"{split}.txt" for split in splits)
    lines = [
        f"{source.name}: {missing} cannot be had: {reason}",
        f"  put it at: {folder / (splits[0] + '.txt')}[.gz]",
    ]
    if urls:
        lines.append(f"  from:      {urls[0].format(split=splits[0])}")
    lines.append(
        "  or set GRAPHZOO_DATA=DIR (or --data.root DIR) to a folder that holds " + f"kg/{folder.name}/"
    )
    if urls and ("OFFLINE" in reason or "switched off" in reason):
        lines.append(f"  or run `graphzoo download {source.name}` where there is a network")
    return "\n".join(lines)


def _is_writable(folder: Path) -> bool:
    while not folder.exists():
        if folder.parent == folder:
            return False
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path, timeout=_LOCK_TIMEOUT)
    try:
        lock.acquire()
    except Timeout as error:
        raise DownloadError(
            f"{path}: another process has held this lock for {_LOCK_TIMEOUT / 60:.0f} minutes; if none is "
            "fetching, delete it"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _fetch(urls: list[str], path: Path, facts: FileFacts, source: KGSource, split: str) -> None:
    """Try all addresses, several rounds; a verified file takes the name `path` at once."""
    failures: dict[str, str] = {}
    refused: set[str] = set()
    idle_rounds = 0
    while idle_rounds < _ROUNDS and len(refused) < len(urls):
        if idle_rounds:
            time.sleep(_BACKOFF * 2 ** (idle_rounds - 1))
        idle_rounds += 1
        for url in urls:
            if url in refused:
                continue
            # mirrors may differ in line ends, so a half file is only continued from its own address
            part = path.with_name(f".{path.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part")
            before = _size(part)
            try:
                _transfer(url, part)
                _verify(part, facts, source, split)
            except _Refused as error:
                refused.add(url)
                failures[url] = str(error)
            except (_Broken, OSError, http.client.HTTPException) as error:
                failures[url] = str(error) or type(error).__name__
                _log.info("%s: %s", url, failures[url])
                if _size(part) > before:
                    # a slow line that breaks often still gets there
                    idle_rounds = 0
            else:
                os.replace(part, path)
                _sync_folder(path.parent)
                for leftover in path.parent.glob(f".{path.name}.*.part"):
                    leftover.unlink(missing_ok=True)
                return
    url, why = next(iter(failures.items()))
    more = f" (and {len(failures) - 1} more addresses failed)" if len(failures) > 1 else ""
    raise DownloadError(f"{url.format(split=split)}: {why}{more}")


def _transfer(url: str, part: Path) -> None:
    """Append to `part` what is missing of `url`."""
    have = _size(part)
    headers = {"User-Agent": f"graphzoo/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            # the half file is longer than the file: it belongs to something else
            part.unlink(missing_ok=True)
            raise _Broken("the partial file did not fit, started again") from error
        kind = _Broken if error.code in (408, 425, 429) or error.code >= 500 else _Refused
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError) as error:
        raise _Broken(f"no connection ({getattr(error, 'reason', error)})") from error
    with closing(response):
        if response.headers.get_content_type() == "text/html":
            raise _Refused("the server answered with a web page instead of the file")
        resumed = response.status == 206 and _range_start(response.headers.get("Content-Range")) == have
        length = response.headers.get("Content-Length")
        received = 0
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        if length is not None and received != int(length):
            raise _Broken(f"the connection ended after {received:,} of {int(length):,} bytes")


def _human(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{math.ceil(num_bytes / 1e3)} kB"


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _range_start(value: str | None) -> int | None:
    """`bytes 100-199/200` starts at 100."""
    try:
        return int((value or "").removeprefix("bytes").strip().split("-")[0])
    except ValueError:
        return None


def _verify(part: Path, facts: FileFacts, source: KGSource, split: str) -> None:
    """Check the content; what is wrong is deleted, so that it is never continued or used."""
    data = part.read_bytes()
    if data.lstrip()[:1] == b"<":
        part.unlink()
        raise _Refused("the server answered with a web page instead of the file")
    lines = len(set(data.replace(b"\r\n", b"\n").split(b"\n")) - {b""})
    if lines != facts.num_triples:
        part.unlink()
        raise _Broken(f"{lines:,} different lines instead of {facts.num_triples:,}")
    if facts.sha256 is None:
        # `usedforsecurity`: md5 is what others have published of this file, it guards against damage only
        if facts.md5 != hashlib.md5(data, usedforsecurity=False).hexdigest():
            _log.warning(
                "%s %s: %s", source.name, split, source.note or "no hash is known, only the count was checked"
            )
        return
    found = content_hash(data)
    if found != facts.sha256 and split not in source.provisional:
        part.unlink()
        raise _Broken(f"wrong content (sha256 {found[:16]}..., expected {facts.sha256[:16]}...)")


def _sync_folder(folder: Path) -> None:
    # a rename is durable only when the folder is; Windows cannot open folders
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
