"""One process of `runs.of_processes`: a worker or a parameter server."""

import json
import pathlib
import sys

import numpy as np

from terngrad.cluster import devices
from terngrad.cluster import spec as clusters
from terngrad.exchange import group as groups
from terngrad.measure.processes import servers
from tests.bits import cases
from tests.bits import runs

# Seconds that the others may take to come, or to end.
_TIMEOUT = 300


def main():
  request = json.loads(sys.argv[1])
  group = cases.Group(*request['group'])
  layout = cases.LAYOUTS[group.layout]
  cluster = clusters.make(request['hosts'], request['job'], request['index'])
  if layout.servers and not cluster.is_chief:
    # Until it is killed: where it ends by itself its threads may fail it.
    servers.serve(cluster, 10 * _TIMEOUT)
    return
  if layout.servers:
    servers.join(cluster, _TIMEOUT)
    found = [runs.bits_by_servers(case, cluster) for case in group.cases()]
  else:
    devices.configure(layout.devices)
    members = groups.Group(cluster, _TIMEOUT)
    found = [runs.bits(case, members) for case in group.cases()]
    # Nobody ends while another still waits for what it sends.
    members.all_gather_now(np.zeros(1, np.int32))
  path = pathlib.Path(request['folder']) / f'{cluster.index}.npz'
  arrays = {
    f'{index}-{number}': bits
    for index, those in enumerate(found)
    for number, bits in enumerate(those)
  }
  np.savez(path, **arrays)


if __name__ == '__main__':
  main()
