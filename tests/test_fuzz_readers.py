"""Damaged files are read, or refused in a few lines; `python -m tests.fuzz_readers` searches longer."""

import logging
from pathlib import Path

import pytest
from helpers.fuzz_cases import READERS, check, good, spoiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FOUND = sorted((Path(__file__).parent / "fuzz_found").rglob("*-*.*"))


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# The first call of a reader also imports its libraries, perhaps on a busy machine.
SECONDS = 120


@pytest.fixture
def folder(tmp_path_factory):
    """Function that makes an empty folder."""
    return lambda: tmp_path_factory.mktemp("spoiled")


@pytest.mark.parametrize("reader", READERS)
def test_good_files_are_read(reader, folder):
    for name in READERS[reader][1]:
        assert check(reader, name, good(reader, name), folder(), seconds=300) == "read"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_that_once_broke_a_reader_are_read_or_refused(path, folder):
    """Kept by the fuzz run as `HASH-NAME`, NAME being the file that the reader expects."""
    reader, name = path.parent.name.replace("-", " "), path.name.partition("-")[2]
    assert check(reader, name, path.read_bytes(), folder(), seconds=SECONDS) in ("refused", "read")


@pytest.mark.fault(
    "any input file with bytes flipped, removed, inserted or encoded differently",
    "it is read, or refused with its name in at most six lines",
)
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_are_read_or_refused(reader, folder, data):
    names = sorted(READERS[reader][1])
    name = data.draw(st.sampled_from(names))
    check(
        reader, name, data.draw(spoiled([good(reader, other) for other in names])), folder(), seconds=SECONDS
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyError("a"), "a"), (ValueError("x" * 9), "x"), (None, "not named"), ("\n" * 9, "a message of")],
)
def test_a_reader_that_breaks_is_found(monkeypatch, folder, error, message):
    from graphzoo.datasets import DataError

    def broken(path):
        raise (
            error if isinstance(error, Exception) else DataError(f"{path.parent if error else ''}{error}a")
        )

    monkeypatch.setitem(READERS, "broken", (broken, {}))
    with pytest.raises((KeyError, ValueError, AssertionError), match=message) as caught:
        check("broken", "file.txt", b"", folder())
    assert not isinstance(caught.value, DataError)


def test_a_reader_that_hangs_is_found(monkeypatch, folder):
    from graphzoo.datasets import DataError

    def endless(path):
        try:
            while True:
                pass
        except Exception as error:  # as readers do; it must not catch the alarm
            raise DataError(f"{path}: damaged") from error

    monkeypatch.setitem(READERS, "endless", (endless, {}))
    with pytest.raises(AssertionError, match="not done"):
        check("endless", "file.txt", b"", folder(), seconds=0.05)
