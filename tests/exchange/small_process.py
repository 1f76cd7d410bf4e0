"""One process of `processes.train_small`: small nets, trained together."""

import json
import pathlib
import pickle
import sys

import numpy as np
from tensorflow.python.eager import context

from terngrad.cluster import coordination
from terngrad.cluster import devices
from terngrad.cluster import spec
from terngrad.exchange import collective
from terngrad.exchange import group
from terngrad.step import replicas
from tests.exchange import conformance
from tests.step import small

# Words of a piece, so few that small tensors travel as large ones do.
PIECE = 2**12
NETS = {'dense': small.dense_net, 'conv': small.conv_net}


def train(members, job):
  """All variables after `steps`, as bits."""
  names = tuple(f'/CPU:{i}' for i in range(job['devices']))
  exchange = collective.Collective(
    members, names, job['workers'], job.get('algorithm', 'auto')
  )
  training = small.Training(
    NETS[job['net']],
    devices=job['devices'],
    workers=job['workers'],
    codec=job['codec'],
    exchange=exchange,
    synchronize=job.get('synchronize', False),
  )
  # Only the chief's values count.
  for replica in training.replicas[: exchange.first]:
    replica.trainable[0].assign_add(replica.trainable[0])
  assert coordination.broadcast_start(
    exchange, training.replicas, (7, members.rank)
  ) == (
    7,
    0,
  )
  training.run(job['steps'])
  names = replicas.variable_names(training.plan, training.replicas[0])
  replicas.check_equal(training.replicas, names)
  coordination.assert_equal(exchange, training.replicas[0], names)
  return training.values()


def conform(members, job):
  """What the tests of `conformance` want of an exchange, for `rounds`."""
  names = tuple(f'/CPU:{i}' for i in range(job['devices']))
  exchange = collective.Collective(
    members, names, job['workers'], job['algorithm']
  )
  combined = {
    name: conformance.combine(exchange, name) for name in job['rounds']
  }
  received_examples = conformance.examples(exchange)
  return conformance.share(exchange), combined, received_examples


def main():
  request = json.loads(sys.argv[1])
  devices.configure(2)
  members = group.Group(
    spec.make({'worker': request['hosts']}, 'worker', request['rank']),
    100,
    piece=PIECE,
  )
  # Not the runtime's 10 seconds: a slow link takes longer for a part.
  service = context.context().coordination_service
  assert service.heartbeat_timeout_in_ms == 100_000
  values = [train(members, job) for job in request['jobs']]
  found = [conform(members, job) for job in request['conform']]
  # Threads for those that wait at a time, on each device; none stays until a
  # time-out is over.
  threads = pathlib.Path('/proc/self/task').glob('*/comm')
  names = [path.read_text() for path in threads]
  most = max(job['devices'] for job in (*request['jobs'], *request['conform']))
  count = names.count('collective_ops\n')
  assert count < 40 * most, count
  folder, rank = pathlib.Path(request['folder']), request['rank']
  np.savez(folder / f'{rank}.npz', *values)
  (folder / f'{rank}.pickle').write_bytes(pickle.dumps(found))
  members.all_gather_now(np.zeros(1, np.int32))


if __name__ == '__main__':
  main()
