"""What tests of loaded models share."""

import pytest
import torch

from graphzoo.inference import forks


@pytest.fixture
def in_forked_process(monkeypatch):
    """As in a process that was forked after another loaded a model; the numbers of threads that are set."""
    asked = []
    monkeypatch.setattr(forks, "_first", -1)  # the parent's number
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    return asked
