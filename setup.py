"""Packaging of terngrad and slim: metadata, dependencies and programs."""

import ast
import pathlib

import setuptools

ROOT = pathlib.Path(__file__).resolve().parent

# Both ends of every range are meant to be tried, not guessed: see
# CONTRIBUTING.md, "Versions".
INSTALL_REQUIRES = [
  'absl-py>=2.0',
  'keras>=3.5,<4',
  'matplotlib>=3.8',
  'mlxtend>=0.23',
  'numpy>=1.26',
  'pandas>=2.1',
  # Not used by name: with an older one the tensorflow-metadata that comes with
  # tensorflow-datasets refuses to be imported. TensorFlow 2.19 needs an older.
  'protobuf>=6.31.1',
  'tensorboard>=2.18',
  'tensorflow>=2.20,<2.22',
  'tensorflow-datasets>=4.9.6',
  'tqdm>=4.66',
]

# Image databases of Caffe2.
DATABASES = [
  'lmdb>=1.4',
  # 1.5.1, the newest, comes compiled up to Python 3.12; for later ones it needs
  # a compiler and LevelDB's headers, so there its users install it by name.
  'plyvel>=1.5.1; python_version < "3.13"',
]

EXTRAS_REQUIRE = {
  'databases': DATABASES,
  'gpu': ['tensorflow[and-cuda]>=2.20,<2.22'],
  'dev': [
    *DATABASES,
    'hypothesis>=6.100',
    'pytest>=8.2,<10',
    'pytest-xdist>=3.6',
    # Exact: a newer formatter may lay out the same code differently.
    'ruff==0.17.5',
    # tests/test_packaging.py builds a wheel without fetching anything.
    'setuptools>=77',
    'wheel>=0.43',
  ],
}

PROGRAMS = {
  'download_and_convert_data': 'slim.download_and_convert_data:run',
  'make_image_db': 'slim.make_image_db:run',
  'mnist_eval': 'terngrad.bin.mnist_eval:run',
  'mnist_train': 'terngrad.bin.mnist_train:run',
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
  packages=setuptools.find_packages(
    include=['terngrad', 'terngrad.*', 'slim', 'slim.*']
  ),
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
