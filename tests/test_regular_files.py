"""Files of others are opened in one place, and only where they are regular and small enough."""

import ast
import os
from pathlib import Path

import pytest

from graphzoo.datasets.errors import DataError
from graphzoo.datasets.triples import read_bytes
from graphzoo.json_file import read_json
from graphzoo.memory import free_bytes
from graphzoo.regular_files import (
    copy_regular,
    is_regular,
    open_regular,
    read_regular,
    read_regular_text,
)

PACKAGE = Path(__file__).resolve().parents[1] / "graphzoo"
# Modules that open files themselves, and why those are not a stranger's.
OWN = {
    "regular_files.py": "the one that does",
    "checkpoints.py": "torch.load of a file that regular_files has opened",
    "streams.py": "the null device",
    "waiting.py": "what the system says of locks and processes",
    "run_lock.py": "the lock, and what the system says of processes and mounts",
    "memory.py": "what the system says of memory",
    "dry_run.py": "what the system says of memory",
    "cli.py": "presets that are shipped or the user's own",
    "runs.py": "command.json and YAML files that the user has typed",
    "search/command.py": "what this search has written",
    "search/trial.py": "the log of a process that this one began",
    "inference/export.py": "what this export has just written",
    "ops/tensor_file.py": "the user's own cache",
    "sampling/pair_subgraphs/file.py": "the user's own cache",
    "sampling/pair_subgraphs/sampler.py": "the user's own cache",
    "datasets/sources.py": "tables of the package",
    "datasets/load.py": "data sets of the package",
    "datasets/source_files.py": "downloads, checked by sha256",
    "datasets/fetch.py": "the part of a download that this process writes",
    "datasets/verify.py": "downloads, checked by sha256",
    "datasets/node/deezer.py": "downloads, checked by sha256",
    "datasets/node/planetoid.py": "downloads, checked by sha256",
    "datasets/node/actor.py": "downloads, checked by sha256",
    "datasets/node/build.py": "downloads, checked by sha256",
    "datasets/node/masked.py": "downloads, checked by sha256",
    "datasets/node/ogb.py": "downloads, checked by sha256",
    "datasets/node/points.py": "downloads, checked by sha256",
    "datasets/node/unpickle.py": "downloads, checked by sha256",
    "datasets/link/fixed.py": "downloads, checked by sha256",
    "datasets/link/ogb.py": "downloads, checked by sha256",
    "datasets/triples.py": "gzip over bytes that regular_files has read",
    "datasets/arrays_file.py": "numpy over a file that regular_files has opened",
    "datasets/node/own.py": "numpy and torch over files that regular_files has looked at",
    "datamodules/features.py": "numpy over a file that regular_files has opened",
}
READS = {
    "open",
    "read_text",
    "read_bytes",
    "load",
    "loadtxt",
    "copytree",
    "copyfile",
    "copy",
    "copy2",
    "fromfile",
}
MODULES = {"torch", "np", "numpy", "shutil", "gzip", "tarfile", "zipfile", "os", "io"}


def reads(tree):
    """Calls that open a file for reading, as text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_module = isinstance(owner, ast.Name) and owner.id in MODULES
        if name in ("load", "loadtxt", "copy", "fromfile") and not of_module:
            continue
        if name != "open" and owner is None:  # a function of ours, which is looked at where it is made
            continue
        modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        writes = name == "open" and any(set(mode) <= set("wax+bt") for mode in modes)
        if name in READS and not writes:
            yield f"line {node.lineno}: {ast.unparse(node)[:80]}"


def test_nothing_else_opens_files_of_others():
    """A new reader goes through `graphzoo.regular_files`, or says here why its files are not a stranger's."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if calls := list(reads(ast.parse(path.read_text()))):
            found[path.relative_to(PACKAGE).as_posix()] = calls
    assert {name: calls for name, calls in found.items() if name not in OWN} == {}


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "endless": path, "gone": "nowhere"}[kind])


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "endless", "gone"])
def test_what_is_no_regular_file_is_not_opened(tmp_path, kind):
    make(kind, tmp_path / "x")
    for read in (open_regular, read_regular, read_regular_text, read_json):
        with pytest.raises(OSError):
            read(tmp_path / "x")
    assert not is_regular(tmp_path / "x")


def test_sizes_are_bounded(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, most=100) == b"x" * 100
    with pytest.raises(OSError, match=r"larger than 99 bytes \(100\)"):
        open_regular(path, most=99)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    for read in (read_regular, read_regular_text, read_json):
        with pytest.raises(OSError, match="larger than|are holes"):
            read(path)


@pytest.mark.fault(
    "a data file is larger than the memory that is free", "refused before it is read, with both sizes"
)
def test_what_memory_cannot_hold_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "train.txt"
    path.write_bytes(b"a\tb\tc\n" * 1000)
    monkeypatch.setattr("graphzoo.regular_files.MOST_TEXT", 100)
    monkeypatch.setattr("graphzoo.regular_files.free_bytes", lambda: 6000)
    assert len(read_regular(path)) == 6000
    monkeypatch.setattr("graphzoo.regular_files.free_bytes", lambda: 5999)
    with pytest.raises(DataError, match=r"train.txt: .*it has 0.0 GiB, and 0.0 GiB of memory are free"):
        read_bytes(path)
    assert read_regular(path, most=6000), "a bound of its own is enough"
    monkeypatch.setattr("graphzoo.regular_files.free_bytes", lambda: None)
    assert len(read_regular(path)) == 6000


def test_the_machine_says_what_is_free():
    free = free_bytes()
    assert free is None or 2**20 < free < 2**50


def test_a_copy_follows_no_link(tmp_path):
    (tmp_path / "secret").write_text("s")
    (tmp_path / "link").symlink_to("secret")
    assert read_regular(tmp_path / "link") == b"s"
    with pytest.raises(OSError, match="a link, not a regular file"):
        copy_regular(tmp_path / "link", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_nesting_without_end_is_no_json(tmp_path):
    (tmp_path / "x").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="deep"):
        read_json(tmp_path / "x")


def test_the_table_names_modules_that_are_there():
    assert [name for name in OWN if not (PACKAGE / name).is_file()] == []
