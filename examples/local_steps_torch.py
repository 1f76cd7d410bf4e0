"""Trains a PyTorch model in processes that exchange once in 10 steps.

    terngrad launch -n 2 -- python examples/local_steps_torch.py [STEPS]

PyTorch never meets TensorFlow: only the helper process of each process uses it.
"""

import hashlib
import json
import os
import sys

import torch

import terngrad


def main(number='200'):
  rank = json.loads(os.environ.get('TF_CONFIG', '{"task":{"index":0}}'))
  rank = rank['task']['index']
  generator = torch.Generator().manual_seed(rank)
  truth = torch.linspace(-1, 1, 60).reshape(20, 3)
  model = torch.nn.Linear(20, 3)
  optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
  parameters = [parameter.data for parameter in model.parameters()]
  steps = terngrad.LocalSteps(every=10, codec='int8', overlap='eager')

  def assign(arrays):
    for parameter, array in zip(parameters, arrays, strict=True):
      parameter.copy_(torch.from_numpy(array))

  # From here on the processes have equal parameters.
  assign(steps.start(parameters))
  for _ in range(int(number)):
    inputs = torch.randn(32, 20, generator=generator)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if steps.count_step():
      assign(steps.exchange(parameters))
  assign(steps.complete(parameters))
  bits = b''.join(parameter.numpy().tobytes() for parameter in parameters)
  print(f'process {rank}: loss {loss.item():.4f}, {steps.figures}')
  print(f'process {rank}: parameters {hashlib.sha256(bits).hexdigest()[:16]}')


if __name__ == '__main__':
  main(*sys.argv[1:])
