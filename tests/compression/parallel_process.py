"""One process of two that train together by `terngrad.parallelize`."""

import json
import pathlib
import sys

import numpy as np

import terngrad
from tests.compression import small_inputs
from tests.step import small


def refuse(parallel):
  """What only all processes together can know of their inputs."""
  try:
    parallel.evaluate(lambda index, count: small_inputs.of_device(0, count))
  except ValueError as error:
    if 'is bit-identical to that of device 0' in str(error):
      return
  raise SystemExit('Equal batches in two processes were not refused.')


def main():
  request = json.loads(sys.argv[1])
  folder = pathlib.Path(request['folder'])
  rank = request['rendezvous']['task_id']
  parallel = terngrad.parallelize(
    small_inputs.of_device,
    small.conv_net,
    codec='ternary',
    rendezvous=request['rendezvous'],
    broadcast_computed_params=request['averaged'],
  )
  # Training begins with its first batches all the same.
  parallel.test()
  result = parallel.run(3)
  score = parallel.evaluate(small_inputs.of_device)
  parallel.save(folder / 'saved.weights.h5')
  refuse(parallel)
  np.savez(
    folder / f'{rank}.npz',
    loss=result.loss,
    score=score,
    examples=result.num_examples,
    **parallel.params(0),
    **parallel.statistics(0),
  )


if __name__ == '__main__':
  main()
