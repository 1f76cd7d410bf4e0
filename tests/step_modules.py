"""Which modules one has to open to follow a training step.

  python -m tests.step_modules [--codec=TEXT] [--servers]

Takes one step of LeNet on towers with ternary gradients, and lists the modules
of `terngrad` whose functions the step calls, from the loop to the applied
update: those that run while the step is made, traced and taken. With --servers
those that a step over parameter servers, here devices of this process, calls
besides. Lines are those that are neither empty, nor comments, nor
documentation.
"""

import argparse
import ast
import functools
import pathlib
import sys
import tokenize

import tensorflow as tf

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def code_lines(path):
  """How many lines of a file hold code."""
  lines = set()
  with tokenize.open(path) as file:
    for token in tokenize.generate_tokens(file.readline):
      if token.type not in _NO_CODE:
        lines.update(range(token.start[0], token.end[0] + 1))
  tree = ast.parse(path.read_text(encoding='utf-8'))
  for node in ast.walk(tree):
    body = getattr(node, 'body', None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
      value = body[0].value
      if isinstance(value, ast.Constant) and isinstance(value.value, str):
        lines -= set(range(value.lineno, value.end_lineno + 1))
  return len(lines)


_NO_CODE = (
  tokenize.COMMENT,
  tokenize.NL,
  tokenize.NEWLINE,
  tokenize.INDENT,
  tokenize.DEDENT,
  tokenize.ENDMARKER,
)


class Calls:
  """Notes the modules of `terngrad` that are called meanwhile.

  Attributes:
    paths: set of `pathlib.Path`.
  """

  def __init__(self):
    self.paths = set()
    self._start = str(_ROOT / 'terngrad')

  def __enter__(self):
    sys.setprofile(self._note)
    return self

  def __exit__(self, *error):
    sys.setprofile(None)

  def _note(self, frame, event, argument):
    del argument
    name = frame.f_code.co_filename
    # Bodies of modules and of classes run when they are imported.
    if event == 'call' and name.startswith(self._start):
      if frame.f_code.co_name != '<module>':
        self.paths.add(pathlib.Path(name))


def of_towers(codec):
  """The paths of the modules of a step on towers."""
  from terngrad.config import options as options_lib
  from terngrad.config import training as configs
  from terngrad.training import assembly
  from terngrad.training import loop

  config = options_lib.build(
    configs.TrainConfig,
    dataset_name='mnist',
    net='lenet',
    image_size=28,
    batch_size=4,
    num_gpus=2,
    num_nodes=4,
    benchmark_mode=True,
    codec=codec,
    quantize_logits=True,
  )
  calls = Calls()

  context = assembly.process_context(config)
  make_step = context.make_step

  def noting(*arguments):
    with calls:
      return make_step(*arguments)

  context.make_step = noting
  run = assembly.assemble(config, context)
  batches = iter(run.batches(0))
  images, labels = next(batches)
  numbers = tf.constant(0, tf.int64), tf.constant(0.1), tf.constant(0.5)
  with calls:
    run.coded_step.take(images, labels, *numbers, tf.constant(0.0))
  return {*calls.paths, pathlib.Path(loop.__file__)}


def of_servers(codec):
  """The same over parameter servers."""
  from terngrad.exchange import server
  from terngrad.exchange import towers
  from terngrad.step import step as steps
  from tests.step import small

  names = tuple(f'/CPU:{i}' for i in range(2))
  feed = server.LocalBatch(*small.batch_of(1, [2, 2]))
  exchange = server.Servers(towers.Towers(names, 4), ('/CPU:2',), 2, [feed])
  built = small.Training(
    small.dense_net,
    devices=2,
    workers=4,
    codec=codec,
    exchange=exchange,
    on_kernels=True,
  )
  training = steps.Training(
    built.node_pass,
    exchange,
    built.replicas,
    built.states,
    built.optimizer,
    seed=11,
  )
  numbers = tf.constant(0, tf.int64), tf.constant(0.1), tf.constant(0.5)
  calls = Calls()
  with calls:
    step = steps.TrainStep(training, built.codec)
    step.take(*small.batch_of(0, [2, 2]), *numbers)
  return calls.paths


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--codec', default='ternary')
  parser.add_argument('--servers', action='store_true')
  options = parser.parse_args()
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 4,
  )
  # Functions that AutoGraph has rewritten are of no module.
  tf.function = functools.partial(tf.function, autograph=False)
  paths = of_towers(options.codec)
  if options.servers:
    paths = of_servers(options.codec) - paths
  total = 0
  for path in sorted(paths):
    count = code_lines(path)
    total += count
    sys.stdout.write(f'{count:5d}  {path.relative_to(_ROOT)}\n')
  sys.stdout.write(f'{total:5d}  lines in {len(paths)} modules\n')


if __name__ == '__main__':
  main()
