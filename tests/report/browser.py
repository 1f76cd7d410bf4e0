"""A headless browser, where one is installed."""

import shutil
import subprocess

PROGRAM = next(
  filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'chrome'))),
  None,
)
_FLAGS = (
  '--headless=new',
  '--no-sandbox',
  '--disable-gpu',
  '--window-size=1200,900',
  # Scripts wait in the page's time, which passes as fast as they run.
  '--virtual-time-budget=10000',
)


def dump(address, profile):
  """Returns the HTML of a page after its scripts ran; `profile` is a folder."""
  return subprocess.run(
    [PROGRAM, *_FLAGS, f'--user-data-dir={profile}', '--dump-dom', address],
    capture_output=True,
    text=True,
    timeout=120,
    check=True,
  ).stdout
