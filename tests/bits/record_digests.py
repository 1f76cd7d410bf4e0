"""Records `digests.json`: `python -m tests.bits.record_digests [LAYOUT...]`.

Only for code whose bits are known to be right; a kind of machine is recorded
beside the others.
"""

import sys
import tempfile
import time

from terngrad.cluster import devices
from tests.bits import cases
from tests.bits import recorded
from tests.bits import runs


def main(layouts):
  devices.configure(2)
  for group in [*cases.groups(alone=True), *cases.groups(alone=False)]:
    if layouts and group.layout not in layouts:
      continue
    start = time.monotonic()
    if cases.LAYOUTS[group.layout].processes == 1:
      found = [runs.bits(case) for case in group.cases()]
    else:
      with tempfile.TemporaryDirectory() as folder:
        found = runs.of_processes(group, folder)
    names = map(str, group.cases())
    digests = map(recorded.digest, found)
    recorded.add('digests', dict(zip(names, digests, strict=True)))
    seconds = time.monotonic() - start
    sys.stdout.write(f'{group}: {len(found)} cases, {seconds:.0f} s\n')
    sys.stdout.flush()


if __name__ == '__main__':
  main(sys.argv[1:])
