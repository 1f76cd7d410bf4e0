"""Scripts of experiments: run again, they write the tables beside them."""

import os
import pathlib
import shutil
import subprocess
import sys

import pandas as pd
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
  ('script', 'table'),
  [
    ('paper_scaling/model.py', 'model.csv'),
    ('plan_validation/validate.py', 'planned.csv'),
  ],
)
def test_script_writes_the_table_that_is_committed(script, table, tmp_path):
  committed = (ROOT / 'experiments' / script).parent
  copy = shutil.copytree(committed, tmp_path / committed.name)
  (copy / table).unlink()
  subprocess.run(
    [sys.executable, copy / pathlib.Path(script).name],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    check=True,
    stdout=subprocess.DEVNULL,
  )
  expected, received = (pd.read_csv(p / table) for p in (committed, copy))
  # The last digit of what was rounded may be another where libraries differ.
  pd.testing.assert_frame_equal(received, expected, rtol=1e-3, atol=2e-4)
