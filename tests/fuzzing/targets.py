"""The table of what is fuzzed; see `target.Target`."""

import functools
import re

from slim import spelling
from terngrad.codec.methods import registry

_NAMES = {
  'texts': (
    *('metrics', 'checkpoint_list', 'hosts', 'hosts_flags', 'tf_config'),
    *('flags', 'sweep'),
  ),
  'codes': ('codec', 'rules', 'stages'),
  'archives': ('tar', 'tar_within', 'tar_stream'),
  'files': ('pickled', 'cifar_python', 'idx', 'idx_gzip'),
  'lists': ('boxes', 'box_list', 'labels', 'shards_json', 'counts'),
  'records': ('tfrecord', 'example', 'photograph', 'shard', 'tensor_protos'),
  'images': ('jpeg', 'png', 'other_image', 'decoded_image'),
}


def _payload_name(text):
  return 'payload_' + re.sub('[^a-z0-9]+', '_', text)


_PAYLOADS = {_payload_name(text): text for text in registry.KINDS}
TARGETS = {
  name: f'tests.fuzzing.of_{module}:{name}'
  for module, names in _NAMES.items()
  for name in names
}
TARGETS |= dict.fromkeys(_PAYLOADS, 'tests.fuzzing.of_payloads:payload')


def get(name):
  """The `target.Target` of a name of `TARGETS`."""
  make = spelling.resolve(TARGETS[name])
  if name in _PAYLOADS:
    make = functools.partial(make, _PAYLOADS[name])
  return make()
