"""A project with a configuration, a fake ssh and tasks, for run_dist.sh."""

import os

# A task that says it runs and stays until it is asked to end.
STAYS = 'record "$@"; echo $$ >"$fifo"; read -r <>"$fifo.never"'
HOSTS = 'PS_HOSTS=(one:2222)\nWORKER_HOSTS=(two:2222 three.example:2222)\n'
# Sets `gpus` in an interpreter's script: one for each that its task was given.
GPUS = (
  'commas=${CUDA_VISIBLE_DEVICES//[!,]/}\n'
  'gpus=0; [[ -z $CUDA_VISIBLE_DEVICES ]] || gpus=$((${#commas} + 1))\n'
)
LOCAL = (
  'PS_HOSTS=(localhost:2222)\nWORKER_HOSTS=("[::1]:2224" 127.0.0.2:2226)\n'
)


def runs(pid):
  """Whether the process is there and no zombie."""
  try:
    with open(f'/proc/{pid}/stat') as file:
      return file.read().rpartition(') ')[2][0] not in 'ZX'
  except OSError:
    return False


def read_until(process, text):
  """Reads lines until one has this text."""
  for line in process.stdout:
    if text in line:
      return
  raise AssertionError(process.stderr.read())


class Cluster:
  """A project with a configuration, an ssh, and scripts of tasks."""

  def __init__(self, project, folder):
    self.project = project
    self.folder = folder
    self.home = folder / 'home'
    self.workspace = folder / 'work space'
    self.data = [folder / 'data 0', folder / 'data 1']
    for path in (self.home, self.workspace, *self.data):
      path.mkdir()
    os.mkfifo(f'{project.fifo}.never')
    self.ssh = project.program(
      folder / 'bin' / 'ssh',
      f'printf "%s\\x1f" "$@" >>"{folder}/ssh"; echo >>"{folder}/ssh"\n'
      'while [[ $1 != -- ]]; do shift; done\n'
      'case $2 in\n'
      '  down*) echo "no route to $2" >&2; exit 255 ;;\n'
      f'  late) [[ -e "{folder}/l" ]] && exit 255; touch "{folder}/l" ;;\n'
      f'  gone) [[ ! -e "{folder}/gone" ]] || exit 255 ;;\n'
      'esac\n'
      # As sshd has it: a shell is given all words in one line.
      'exec sh -c "${*:3}"',
    )
    self.worker = self.script('worker script', STAYS)
    self.ps = self.script('ps', STAYS)
    self.config = folder / 'config'
    self.write(LOCAL)

  def script(self, name, body):
    return self.project.program(self.folder / name, body)

  def write(self, hosts, **words):
    """Writes the configuration; `words` are lines as they are."""
    lines = {
      'WORKER_DEVICES': "('' 0,1)",
      'DATA_DIR': f"('{self.data[0]}' '{self.data[1]}')",
      'WORKER_SCRIPT': f"'{self.worker}'",
      'PS_SCRIPT': f"'{self.ps}'",
      'WORKSPACE': f"'{self.workspace}'",
      'ALLOW_INSECURE_NETWORK': 'true',
    } | words
    text = ''.join(f'{name}={word}\n' for name, word in lines.items())
    self.config.write_text(hosts + text)

  def start(self, *arguments, script='run_dist.sh'):
    """Starts a script with this configuration."""
    path = f'{self.ssh.parent}:{os.environ["PATH"]}'
    if script != 'kill_local.sh':
      arguments = (f'--config={self.config}', *arguments)
    return self.project.start(script, *arguments, PATH=path, HOME=self.home)

  def run(self, *arguments, script='run_dist.sh'):
    """Returns (status, standard output, standard error) of a whole run."""
    process = self.start(*arguments, script=script)
    out, err = process.communicate(timeout=self.project.TIMEOUT)
    return process.returncode, out, err

  def started(self, *arguments):
    """Starts the experiment `e`; returns {task: pid}."""
    status, out, err = self.run('--experiment=e', *arguments)
    assert (status, err) == (0, ''), out
    heard = {int(self.project.heard()) for _ in range(3)}
    pids = {
      path.stem: int(path.read_text().split()[0])
      for path in (self.workspace / 'e').glob('*.pid')
    }
    assert set(pids.values()) == heard
    return pids

  def ssh_calls(self):
    log = self.folder / 'ssh'
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split('\x1f')[:-1] for line in lines]


def give_interpreter(project):
  """Lets all hosts have the same versions, and the GPUs that tasks ask for."""
  project.program(
    project.root / '.venv' / 'bin' / 'python',
    f'{GPUS}echo "terngrad 1, TensorFlow 2, Python 3; $gpus GPUs"',
  )
