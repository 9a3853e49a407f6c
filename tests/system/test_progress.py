"""Progress bars appear after a delay and on terminals only, and never disturb the work."""

import io
import threading
import time
from types import SimpleNamespace

import pytest
import rich.progress

from graphzoo.system import progress as module
from graphzoo.system.progress import progress, set_quiet


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    screen = Terminal()
    # `module.sys` is replaced, since pytest sets sys.stderr anew between the fixture and the test
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=screen, modules={}))
    monkeypatch.setattr(module, "DELAY", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("GRAPHZOO_QUIET", raising=False)
    set_quiet(False)
    return screen


def wait_for(screen, text):
    until = time.monotonic() + 20
    while text not in screen.getvalue():
        assert time.monotonic() < until, screen.getvalue()
        time.sleep(0.02)


def bars():
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_long_work_gets_a_bar_with_its_count_and_the_time_left(terminal):
    with progress("denoising", 40) as advance:
        advance(10)
        wait_for(terminal, "denoising")
        advance(10)
        wait_for(terminal, "20/40")
    assert "left" in terminal.getvalue() and not bars()


def test_the_text_of_a_bar_may_change(terminal):
    with progress("comparing", 40) as advance:
        wait_for(terminal, "comparing")
        advance(0, "galit, seed 1")
        wait_for(terminal, "galit, seed 1")
        assert "0/40" in terminal.getvalue()


def test_bytes_are_shown_as_such(terminal):
    with progress("fb15k237.zip", 40e6, unit="bytes") as advance:
        advance(20e6)
        wait_for(terminal, "20.0/40.0 MB")


def test_work_of_unknown_length_shows_no_time_left(terminal):
    with progress("reading wn18rr"):
        wait_for(terminal, "reading wn18rr")
    assert "left" not in terminal.getvalue()


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(module, "DELAY", 60)
    with progress("quick", 3) as advance:
        advance(3)
    assert terminal.getvalue() == "" and not bars()


def test_an_error_removes_the_bar_and_is_raised(terminal):
    with pytest.raises(ZeroDivisionError), progress("dividing", 3):
        wait_for(terminal, "dividing")
        1 / 0  # noqa: B018
    assert not bars() and "\x1b[?25h" in terminal.getvalue()  # the cursor is shown again


def test_a_bar_inside_another_is_not_shown(terminal):
    with progress("outer", 2):
        wait_for(terminal, "outer")
        with progress("inner", 2) as advance:
            time.sleep(0.2)
            advance(1)
    assert not bars() and "inner" not in terminal.getvalue()
    with progress("another", 2):  # the first bar has ended
        wait_for(terminal, "another")


def test_no_bar_is_shown_beside_one_of_lightning(terminal):
    shared = rich.get_console()
    with rich.progress.Progress(console=shared), progress("reading", 2) as advance:
        time.sleep(0.2)
        advance(1)
    assert "reading" not in terminal.getvalue()


def test_only_the_first_process_shows_a_bar(terminal, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with progress("reading", 2):
        assert not bars()


def test_the_work_goes_on_if_no_thread_can_start(terminal, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    with progress("reading", 2) as advance:
        advance(1)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("how", ["quiet", "variable", "no terminal"])
def test_no_bar_if_quiet_or_without_a_terminal(terminal, monkeypatch, how):
    if how == "quiet":
        set_quiet(True)
    elif how == "variable":
        monkeypatch.setenv("GRAPHZOO_QUIET", "1")
    else:
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=io.StringIO(), modules={}))
    with progress("reading", 3) as advance:
        assert not bars()
        advance(1)
    set_quiet(False)
    assert terminal.getvalue() == ""


def test_a_log_gets_a_line_once_a_minute_from_the_command_alone(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(total):
        with progress("answering", total) as advance:
            for _ in range(10):
                now[0] += 15
                advance(4)

    work(80)
    assert capsys.readouterr().err == ""
    with module.with_lines():
        work(80)
        assert capsys.readouterr().err.splitlines() == [
            "answering: 20 %, about 4.0 min to go",
            "answering: 40 %, about 3.0 min to go",
        ]
        work(None)
        assert capsys.readouterr().err.splitlines()[-1] == "answering: 32 after 2.0 min"
        monkeypatch.setenv("RANK", "1")
        work(80)
        monkeypatch.delenv("RANK")
        monkeypatch.setenv("GRAPHZOO_QUIET", "1")
        work(80)
    monkeypatch.delenv("GRAPHZOO_QUIET")
    work(80)
    assert capsys.readouterr().err == ""
