"""A helper process: exchanges for a training process and applies the update.

    python -m terngrad.local.helper SOCKET PIPE ARRAYS STATES STATES

The arguments are descriptors that `helper_process` opens.
"""

import signal
import socket
import sys
import traceback
from collections.abc import Sequence

from terngrad import quiet
from terngrad.local import channel as channels

# EX_TEMPFAIL of sysexits.h: another process was lost.
_LOST = 75
# The training process has closed the connection or ended.
_ENDED = (EOFError, BrokenPipeError)


def main(descriptors: Sequence[int]) -> int:
  """Serves the training process until it ends; returns the exit code."""
  connection, pipe, *files = descriptors
  channels.end_with_writer(pipe)
  # ctrl-c reaches all processes of a terminal, and `terngrad launch` passes
  # signals to all processes of a program; the training process decides.
  for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  channel = channels.Channel(socket.socket(fileno=connection))
  try:
    return _serve(channel, files)
  except _ENDED:
    return 0


def _serve(channel: channels.Channel, files: Sequence[int]) -> int:
  # After `end_with_writer`, since these imports take seconds.
  quiet.import_tensorflow()
  from terngrad.cluster import coordination
  from terngrad.local import options as options_lib
  from terngrad.local import serving

  try:
    options, values = options_lib.decode(channel.receive()['start'])
    serving.HelperServer(options, values, channel, files).serve()
  except ValueError as error:
    channel.write(refused=str(error))
    return 1
  except _ENDED:
    raise
  except Exception as error:  # the training process reports it
    if (lost := coordination.loss_of(error)) is not None:
      channel.write(lost=lost)
      return _LOST
    traceback.print_exc()
    channel.write(failed=f'{type(error).__name__}: {error}')
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(main([int(word) for word in sys.argv[1:]]))
