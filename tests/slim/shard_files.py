"""Makes small data sets of shards and `shards.json`, for the tests of slim."""

import hashlib
import json

from tests.slim import record_files


def write(folder, name, splits, *, num_classes=3, labels=None):
  """Writes {split: payloads of each shard}, and shards.json."""
  listed = {}
  for split, shards in splits.items():
    entries = []
    for number, payloads in enumerate(shards):
      path = folder / f'{split}-{number:05d}-of-{len(shards):05d}'
      record_files.write(path, payloads)
      content = path.read_bytes()
      entries.append(
        {
          'file': path.name,
          'num_examples': len(payloads),
          'size': len(content),
          'sha256': hashlib.sha256(content).hexdigest(),
        }
      )
    listed[split] = {
      'num_examples': sum(map(len, shards)),
      'shards': entries,
    }
  content = {
    'format': 1,
    'dataset': name,
    'num_classes': num_classes,
    'labels': labels,
    'splits': listed,
  }
  (folder / 'shards.json').write_text(json.dumps(content))
