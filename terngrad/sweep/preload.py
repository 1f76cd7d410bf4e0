"""What the fork server of `warm` imports: TensorFlow, without its messages.

TensorFlow writes some lines before it reads `TF_CPP_MIN_LOG_LEVEL`. The server
has the standard error of the command, so they would appear there. Importing
this module lists no devices, because programs are forked from the server.
"""

import importlib

from terngrad import quiet

with quiet.importing():
  for name in ('tensorflow', 'keras'):
    importlib.import_module(name)
