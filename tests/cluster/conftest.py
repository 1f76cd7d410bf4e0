"""Servers of other tasks."""

import contextlib
import socket
import threading

import pytest


@pytest.fixture
def awake():
  """A server that greets whoever connects."""
  with socket.create_server(('127.0.0.1', 0)) as server:

    def greet():
      # Until the test closes the server.
      with contextlib.suppress(OSError):
        while True:
          connection, _ = server.accept()
          with connection:
            connection.sendall(b'\0')

    threading.Thread(target=greet, daemon=True).start()
    yield f'127.0.0.1:{server.getsockname()[1]}'
