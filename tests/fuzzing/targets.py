"""The table of what is fuzzed; see `target.Target`."""

import functools
import re

from slim import spelling
from terngrad.codec.methods import registry

_FILES = {
  name: f'tests.fuzzing.of_files:{name}'
  for name in (
    *('tar', 'tar_within', 'tar_stream', 'idx', 'idx_gzip', 'pickled'),
    *('cifar_python', 'boxes', 'box_list', 'labels', 'shards_json', 'counts'),
  )
}
_RECORDS = {
  name: f'tests.fuzzing.of_records:{name}'
  for name in (
    *('tfrecord', 'example', 'photograph', 'shard', 'tensor_protos'),
    *('jpeg', 'png', 'other_image', 'decoded_image'),
  )
}
_TEXTS = {
  name: f'tests.fuzzing.of_texts:{name}'
  for name in (
    *('metrics', 'checkpoint_list', 'hosts', 'hosts_flags', 'tf_config'),
    *('flags', 'sweep', 'codec', 'rules', 'stages'),
  )
}


def _payload_name(text):
  return 'payload_' + re.sub('[^a-z0-9]+', '_', text)


_PAYLOADS = {_payload_name(text): text for text in registry.KINDS}
TARGETS = {
  **_FILES,
  **_RECORDS,
  **_TEXTS,
  **dict.fromkeys(_PAYLOADS, 'tests.fuzzing.of_payloads:payload'),
}


def get(name):
  """The `target.Target` of a name of `TARGETS`."""
  make = spelling.resolved(TARGETS[name])
  if name in _PAYLOADS:
    make = functools.partial(make, _PAYLOADS[name])
  return make()
