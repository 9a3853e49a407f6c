"""`graphzoo clean` removes the files that it lists, and no others."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = {
    "pair-graphs": "a" * 64 + ".graph",
    "precomputed": f"denoised-{'b' * 64}.bin",
    "parsed": "c" * 64 + ".npz",
    "negatives": "d" * 64 + ".npz",
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one file per folder, which are ten, twenty, thirty and forty days old."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    root = tmp_path / "user" / "graphzoo"
    for number, (folder, name) in enumerate(NAMES.items(), start=1):
        age(write(root / folder / name, number << 20), 10 * number)
    return root


def write(path, size=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def age(path, days):
    then = time.time() - 86400 * days
    os.utime(path, (then, then))
    return path


def left(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_without_a_terminal_it_lists_and_removes_nothing(cli, cache):
    before = left(cache)
    result = cli("clean")
    assert result.status == 0 and left(cache) == before
    *lines, total, last = result.out.splitlines()
    assert [line.split()[-1] for line in lines] == [f"{folder}/{NAMES[folder]}" for folder in [*NAMES][::-1]]
    assert lines[0].split()[:6] == ["4.0", "MiB", "unused", "for", "40.0", "days"]
    assert total.startswith(f"4 files, 10.0 MiB in {cache}") and last == "nothing removed: add --yes"


def test_only_files_of_graphzoo_are_removed(cli, cache):
    others = [
        write(cache / "pair-graphs" / name)
        for name in ("notes.txt", "a" * 63 + ".graph", "A" * 64 + ".graph", NAMES["pair-graphs"] + ".bak")
    ]
    others += [write(cache / "data" / NAMES["parsed"]), write(cache / "parsed" / "deep" / NAMES["parsed"])]
    write(cache / "precomputed" / f".denoised-{'e' * 64}.bin.part")
    write(cache / "pair-graphs" / f".{'e' * 64}.graph.123.tmp")
    result = cli("clean", "--yes")
    assert result.status == 0, result.err
    assert result.out.splitlines()[-1].startswith("removed 6 files, 10.0 MiB")
    kept = {name for name in left(cache) if not name.endswith(".lock")}
    assert kept == {path.relative_to(cache).as_posix() for path in others}
    assert cli("clean").out == f"nothing to remove in {cache}\n"


@pytest.mark.parametrize("option", [["--older_than", "25"], ["--older-than=25"], ["--older-than", "25"]])
def test_age_is_counted_from_the_last_use(cli, cache, option):
    read = cache / "negatives" / NAMES["negatives"]  # forty days old, but just read
    os.utime(read, (time.time(), read.stat().st_mtime))
    result = cli("clean", *option, "--yes")
    assert result.status == 0 and f"parsed/{NAMES['parsed']}" in result.out
    assert f"parsed/{NAMES['parsed']}" not in left(cache)
    assert {f"{folder}/{NAMES[folder]}" for folder in NAMES if folder != "parsed"} <= left(cache)


@pytest.mark.fault(
    "another process is writing a cached file that `graphzoo clean` would remove",
    "the file is kept and named; the others are removed",
)
def test_files_that_another_process_writes_are_kept(cli, cache):
    name = NAMES["precomputed"]
    part = write(cache / "precomputed" / f".{name}.part")
    with FileLock(cache / "precomputed" / f"{name}.lock"):
        result = cli("clean", "--yes")
    assert result.status == 1
    assert part.exists() and (cache / "precomputed" / name).exists()
    assert result.err.splitlines() == [
        f"graphzoo clean: left {path}: another process is writing it"
        for path in (cache / "precomputed" / name, part)
    ]
    assert not (cache / "pair-graphs" / NAMES["pair-graphs"]).exists()


@pytest.mark.fault(
    "symbolic links in the cache when `graphzoo clean` runs", "not followed; their targets stay"
)
@pytest.mark.parametrize("which", ["file", "folder", "root", "lock"])
def test_links_are_not_followed(cli, cache, tmp_path, which):
    name = NAMES["parsed"]
    victim = write(tmp_path / "elsewhere" / name)
    if which == "file":
        (cache / "parsed" / name).unlink()
        (cache / "parsed" / name).symlink_to(victim)
    elif which == "folder":
        (cache / "parsed").rename(tmp_path / "moved")
        (cache / "parsed").symlink_to(victim.parent)
    elif which == "root":
        cache.rename(tmp_path / "moved")
        cache.symlink_to(tmp_path / "moved")
    else:
        (cache / "parsed" / f"{name}.lock").symlink_to(victim)
    result = cli("clean", "--yes")
    assert victim.read_bytes() == bytes(10)
    assert which == "file" or "is a link, and links are not followed" in result.err
    if which == "root":
        assert len(left(tmp_path / "moved")) == 4 and result.out == f"nothing to remove in {cache}\n"
    if which == "lock":
        assert (cache / "parsed" / name).exists() and result.status == 1


def test_files_changed_since_the_list_are_kept(cli, cache, monkeypatch):
    from graphzoo.cli import clean

    def agree():
        write(cache / "parsed" / NAMES["parsed"], 77)
        return True

    monkeypatch.setattr(clean, "_agreed", agree)
    result = cli("clean")
    assert result.status == 1 and "it has changed since it was listed" in result.err
    assert left(cache) >= {f"parsed/{NAMES['parsed']}"}


@pytest.mark.parametrize(
    ("answer", "removes"), [("yes\n", True), ("Y\n", True), ("\n", False), ("\x04", False)]
)
def test_clean_asks_for_confirmation_at_a_terminal(cache, answer, removes):
    controller, terminal = pty.openpty()
    code = "import sys; from graphzoo.cli import main; sys.exit(main(['clean']))"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    output = b""
    while b"[y/N]" not in output:
        output += os.read(controller, 4096)
    assert len([name for name in left(cache) if not name.endswith(".lock")]) == 4
    os.write(controller, answer.encode())
    assert child.wait(60) == 0
    os.close(controller)
    assert len([name for name in left(cache) if not name.endswith(".lock")]) == (0 if removes else 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "clean takes no 'x'"),
        (["--older_than"], "--older-than needs a value"),
        (["--older_than", "week"], "--older-than takes a number of at least 0, got 'week'"),
        (["--older_than=-1"], "--older-than takes a number of at least 0, got '-1'"),
        (["--older_than=nan"], "--older-than takes a number of at least 0, got 'nan'"),
    ],
)
def test_wrong_arguments_are_refused_before_files_are_removed(cli, cache, words, message):
    before = left(cache)
    result = cli("clean", "--yes", *words)
    assert result.status == 2 and result.err.startswith(f"graphzoo: {message}"), result.err
    assert "See graphzoo clean --help" in result.err and left(cache) == before


def test_the_names_are_those_that_the_writers_give(cli, cache):
    """Files with the names that the program gives are found."""
    import torch

    from graphzoo.datamodules.mapped_graph import _mapped
    from graphzoo.ops import cached_denoise
    from graphzoo.sampling import PairSubgraphSampler

    for path in [path for path in cache.rglob("*") if path.is_file()]:
        path.unlink()
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    cached_denoise(torch.ones(4, 2), edge_index, cache=cache / "precomputed")
    settings = {"depth": 1, "num_neighbors": 2}
    _mapped("f" * 64, lambda: PairSubgraphSampler(edge_index, 4, directed=False, **settings), **settings)
    made = {name for name in left(cache) if not name.endswith(".lock")}
    assert len(made) == 2
    assert {line.split()[-1] for line in cli("clean").out.splitlines()[:-2]} == made
