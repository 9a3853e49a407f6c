"""Find, download and check the files of the knowledge graphs of the table."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

from graphzoo.datasets.files.fetch import RemoteFile, provide_files
from graphzoo.datasets.files.verify import Broken, log
from graphzoo.datasets.kg.table import FileFacts, KGSource, content_hash

_SPLITS = ("train", "valid", "test")


def provide(
    source: KGSource, folder: str, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> dict[str, Path]:
    """Files by split, of a row's folder or of its inductive one; missing ones are fetched.

    See `provide_files` for the arguments and errors.
    """
    urls = source.inductive_urls if folder == source.inductive else source.urls
    wanted = []
    for split in _SPLITS:
        facts = source.file(split, folder)
        check = partial(verify_triples, facts=facts, source=source, split=split)
        addresses = tuple(url.format(split=split) for url in urls)
        wanted.append(RemoteFile(f"{split}.txt", addresses, check, facts.num_bytes, (".txt.gz",)))
    paths = provide_files(source.name, f"kg/{folder}", wanted, root=root, download=download)
    return {split: paths[f"{split}.txt"] for split in _SPLITS}


def verify_triples(part: Path, facts: FileFacts, source: KGSource, split: str) -> None:
    """Refuse a file that does not have the triples of the split; line order and line ends do not matter."""
    data = part.read_bytes()
    lines = len(set(data.replace(b"\r\n", b"\n").split(b"\n")) - {b""})
    if lines != facts.num_triples:
        part.unlink()
        raise Broken(f"{lines:,} different lines instead of {facts.num_triples:,}")
    if facts.sha256 is None:
        # For this file only an md5 is published. It detects damage, not manipulation.
        if facts.md5 != hashlib.md5(data, usedforsecurity=False).hexdigest():
            note = source.note or "no hash is known, only the count was checked"
            log.warning("%s %s: %s", source.name, split, note)
        return
    digest = content_hash(data)
    if digest != facts.sha256 and split not in source.provisional:
        part.unlink()
        raise Broken(f"wrong content (sha256 {digest[:16]}..., expected {facts.sha256[:16]}...)")
