"""Atomic writes, and the search for files in folders with links."""

import errno
import os

import pytest

from graphzoo.system import files
from graphzoo.system.files import files_below, write_atomically, write_text_atomically


def test_texts_keep_their_line_ends(tmp_path):
    path = tmp_path / "new" / "größe.txt"
    write_text_atomically(path, "one\r\nzwei ü\n")
    assert path.read_bytes() == "one\r\nzwei ü\n".encode()
    write_text_atomically(path, "")
    assert path.read_bytes() == b"" and [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failed_write_names_the_file_and_keeps_the_old_content(tmp_path, monkeypatch, step):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def no_room(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step != "write":
        monkeypatch.setattr(files.os, step, no_room)
    with pytest.raises(OSError) as caught:
        write_atomically(path, no_room if step == "write" else lambda file: file.write(b"new"))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(path)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_other_errors_of_the_writer_are_raised_unchanged(tmp_path):
    """A failed read of an open file names no file, and an image encoder's error has no number."""
    for error in (OSError(errno.EIO, "Input/output error"), OSError("encoder error -2")):

        def fail(file, error=error):
            raise error

        with pytest.raises(OSError) as caught:
            write_atomically(tmp_path / "x", fail)
        assert caught.value is error and list(tmp_path.iterdir()) == []


def test_a_file_that_the_writer_cannot_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "x", lambda file: file.write((tmp_path / "gone").read_bytes()))
    assert caught.value.filename == str(tmp_path / "gone") and list(tmp_path.iterdir()) == []


def test_runs_on_another_disk_are_found_once_and_their_own_links_not_followed(tmp_path):
    # `runs/ROW` may be a link to /elsewhere/ROW; a link inside a run may be of unknown origin.
    for folder in ("disk/row/seed-0", "runs/galit/one", "secret"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results.json").touch()
    (tmp_path / "disk/row/seed-0/link").symlink_to(tmp_path / "secret")
    (tmp_path / "runs/reproduce").mkdir()
    (tmp_path / "other").mkdir()
    links = {"runs/reproduce/row": "disk/row", "runs/newest": "runs/galit/one", "runs/gone": "nothing"}
    links |= {"runs/again": "runs", "runs/above": ".", "runs/galit/one/link": "secret"}
    links |= {"other/link": "secret", "runs/other": "other"}
    for link, target in links.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    found = files_below(tmp_path / "runs", "results.json")
    parents = [str(path.relative_to(tmp_path / "runs").parent) for path in found]
    assert parents == ["galit/one", "reproduce/row/seed-0"]
    one = tmp_path / "runs/galit/one"
    assert files_below(one, "results.json") == [one / "results.json"]
    assert files_below(one.parent, "results.json") == [one / "results.json"]
