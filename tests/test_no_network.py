"""Tests connect to no other machine."""

import socket

import pytest


def test_a_connection_elsewhere_fails():
    with socket.socket() as probe, pytest.raises(AssertionError, match="192.0.2.1"):
        probe.connect(("192.0.2.1", 80))  # an address reserved for documentation
