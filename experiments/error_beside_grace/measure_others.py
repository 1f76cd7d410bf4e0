"""Measures GRACE and PyTorch on the gradients that our codes are measured on.

  python measure_others.py GRACE OUTPUT.csv FILE.npz...

GRACE is a folder with `grace_dl` of github.com/sands-lab/grace; needs PyTorch.
Every variable is coded separately, as both do. Bits are counted over the
tensors that a collective sends: elements times the bits of their type.
"""

import contextlib
import csv
import importlib
import pathlib
import sys
import tempfile

import numpy as np
import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

DRAWS = 8
# A compressor's module, class and options.
GRACE = {
  'terngrad': ('terngrad', 'TernGradCompressor', {}),
  'qsgd 127': ('qsgd', 'QSGDCompressor', {'quantum_num': 127}),
  'qsgd 7': ('qsgd', 'QSGDCompressor', {'quantum_num': 7}),
  'natural': ('natural', 'NaturalCompressor', {}),
  'topk 0.01': ('topk', 'TopKCompressor', {'compress_ratio': 0.01}),
  'dgc 0.01': ('dgc', 'DgcCompressor', {'compress_ratio': 0.01}),
  'randomk 0.01': ('randomk', 'RandomKCompressor', {'compress_ratio': 0.01}),
  'threshold 2.5': ('threshold', 'ThresholdCompressor', {'threshold': 2.5}),
  'signsgd': ('signsgd', 'SignSGDCompressor', {}),
  'efsignsgd': ('efsignsgd', 'EFSignSGDCompressor', {'lr': 1.0}),
  'onebit': ('onebit', 'OneBitCompressor', {}),
  'fp16': ('fp16', 'FP16Compressor', {}),
  'powersgd 1': ('powersgd', 'PowerSGDCompressor', {'rank': 1}),
  'powersgd 4': ('powersgd', 'PowerSGDCompressor', {'rank': 4}),
}


class Sent:
  """Counts the bits of the tensors that are sent."""

  def __init__(self):
    """Starts at 0 bits."""
    self.bits = 0

  def add(self, tensor):
    """Counts a tensor."""
    self.bits += 8 * tensor.numel() * tensor.element_size()

  @contextlib.contextmanager
  def counting(self):
    """Counts the tensors of `distributed.all_reduce` inside a `with` block."""
    reduce = distributed.all_reduce

    def counted(tensor, *words, **more):
      self.add(tensor)
      return reduce(tensor, *words, **more)

    distributed.all_reduce = counted
    try:
      yield self
    finally:
      distributed.all_reduce = reduce


def code_by_grace(name, variables):
  """Returns (bits, list of decoded tensors) of one draw."""
  module, kind, options = GRACE[name]
  module = importlib.import_module(f'grace_dl.dist.compressor.{module}')
  compressor = getattr(module, kind)(**options)
  # GRACE seeds its generator by name and step, which never change here.
  compressor.global_step = int(torch.randint(2**20, []))
  found, sent = [], Sent()
  with sent.counting():
    for number, tensor in enumerate(variables):
      copy = tensor.clone()
      tensors, context = compressor.compress(copy, str(number))
      for part in tensors if isinstance(tensors, list | tuple) else [tensors]:
        sent.add(part)
      found.append(compressor.decompress(tensors, context))
  return sent.bits, found


def powersgd_state(rank):
  """Returns a state of PyTorch's PowerSGD without warm start or feedback."""
  return powerSGD_hook.PowerSGDState(
    None,
    matrix_approximation_rank=rank,
    start_powerSGD_iter=0,
    use_error_feedback=False,
    warm_start=False,
    random_seed=int(torch.randint(2**20, [])),
  )


# The other hook of this kind, for bfloat16, needs NCCL.
TORCH = {
  'fp16_compress_hook': lambda: (None, default_hooks.fp16_compress_hook),
  'powerSGD_hook 1': lambda: (powersgd_state(1), powerSGD_hook.powerSGD_hook),
  'powerSGD_hook 4': lambda: (powersgd_state(4), powerSGD_hook.powerSGD_hook),
}


class Linear(torch.nn.Module):
  """A loss with the gradients that it is created with."""

  def __init__(self, variables):
    """Stores the gradients, a list of float32."""
    super().__init__()
    self.gradients = variables
    self.weights = torch.nn.ParameterList(
      torch.zeros_like(v) for v in variables
    )

  def forward(self):
    """Returns the sum of the products of parameters and gradients."""
    pairs = zip(self.weights, self.gradients, strict=True)
    return sum((parameter * gradient).sum() for parameter, gradient in pairs)


def code_by_torch(name, variables):
  """Returns (bits, list of decoded tensors) of one draw."""
  net = Linear(variables)
  parallel = torch.nn.parallel.DistributedDataParallel(net)
  state, hook = TORCH[name]()
  parallel.register_comm_hook(state, hook)
  with Sent().counting() as sent:
    parallel().backward()
  return sent.bits, [parameter.grad for parameter in net.weights]


def measure(code, name, variables):
  """Returns bits per element, squared error and its standard error."""
  flat = torch.cat([v.flatten() for v in variables]).double()
  bits, errors = [], []
  for _ in range(DRAWS):
    # Methods seed the generator: set another seed for every draw.
    torch.manual_seed(measure.draw)
    measure.draw += 1
    sent, decoded = code(name, variables)
    decoded = torch.cat([v.flatten() for v in decoded]).double()
    bits.append(sent / flat.numel())
    errors.append(float((decoded - flat).square().sum() / flat.square().sum()))
  return {
    'bits': np.mean(bits),
    'one': np.mean(errors),
    'one_sem': np.std(errors, ddof=1) / DRAWS**0.5,
  }


measure.draw = 0


def main():
  """Measures all methods on all files, and prints and writes the table."""
  grace, output, *files = sys.argv[1:]
  sys.path.insert(0, grace)
  torch.set_num_threads(1)
  with tempfile.TemporaryDirectory() as folder:
    store = pathlib.Path(folder, 'store')
    distributed.init_process_group(
      'gloo', init_method=f'file://{store}', rank=0, world_size=1
    )
  rows = []
  for file in files:
    with np.load(file) as arrays:
      # PyTorch has a kernel's output axis first.
      variables = [
        torch.from_numpy(
          np.ascontiguousarray(np.moveaxis(arrays[key][0], -1, 0))
        )
        for key in arrays.files
      ]
    for system, code, names in (
      ('GRACE', code_by_grace, GRACE),
      (f'PyTorch {torch.__version__}', code_by_torch, TORCH),
    ):
      for name in names:
        found = measure(code, name, variables)
        gradients = pathlib.Path(file).stem
        rows.append({'gradients': gradients, 'of': system, 'name': name})
        rows[-1] |= found
        print(*rows[-1].values(), flush=True)
  with open(output, 'w', encoding='utf-8', newline='') as file:
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
  distributed.destroy_process_group()


if __name__ == '__main__':
  main()
