"""Hosts with an OpenSSH server each, on this machine and without root.

A host is a network namespace that has a loopback and nothing else, so that what
reaches it came through ssh. ssh's ProxyCommand starts the server there, and the
two talk by pipes: no port is listened on, and nothing stays when ssh has ended.
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Who starts a server in a user namespace and is not root there needs no account
# `sshd`, which a machine without the server installed has not.
_USER = 1000
_ENTER = """\
#!/bin/sh
echo $$ >>{folder}/"$1".servers
exec nsenter --target "$(cat {folder}/"$1".pid)" --user --net --mount \\
  --preserve-credentials unshare --user --map-user={user} --map-group={user} \\
  {sshd} -i -f {folder}/"$1".conf -E {folder}/sshd.log
"""
_HOLD = """\
ip link set lo up && mount --bind "$1" /etc/passwd && echo ready && exec cat"""
_SERVER = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
SetEnv PYTHON={python} PYTHONPATH={root} TF_CPP_MIN_LOG_LEVEL=2
"""
_CLIENT = """\
Host *
  ProxyCommand {folder}/enter %n
  User tester
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
"""


def program():
  """The path of an OpenSSH server, TERNGRAD_TEST_SSHD or sshd; None without."""
  path = f'{os.environ["PATH"]}:/usr/sbin:/usr/local/sbin'
  return os.environ.get('TERNGRAD_TEST_SSHD') or shutil.which('sshd', path=path)


def servers(folder, host):
  """The processes of all servers that the host ever had, by their numbers."""
  return [
    int(word) for word in (folder / f'{host}.servers').read_text().split()
  ]


def _write(path, text, mode=0o644):
  path.write_text(text)
  path.chmod(mode)


@contextlib.contextmanager
def hosts(folder, **options):
  """Hosts by name, each with lines for its server; yields a PATH with an ssh.

  A server keeps the first value that it is told of an option.
  """
  words = {
    'folder': folder,
    'python': sys.executable,
    'root': _ROOT,
    'sshd': shlex.quote(program()),
    'user': _USER,
  }
  for name in ('key', 'host_key'):
    command = ['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f']
    subprocess.run([*command, folder / name], check=True, timeout=60)
  key = (folder / 'host_key.pub').read_text()
  _write(folder / 'known_hosts', f'{",".join(options)} {key}')
  _write(folder / 'passwd', f'tester:x:{_USER}:{_USER}::{folder}:/bin/bash\n')
  _write(folder / 'enter', _ENTER.format(**words), 0o755)
  _write(folder / 'client', _CLIENT.format(**words))
  (folder / 'bin').mkdir()
  client = f'exec {shutil.which("ssh")} -F {folder}/client "$@"'
  _write(folder / 'bin' / 'ssh', f'#!/bin/sh\n{client}\n', 0o755)
  with contextlib.ExitStack() as stack:
    for name, lines in options.items():
      _write(folder / f'{name}.conf', lines + _SERVER.format(**words))
      holder = stack.enter_context(
        subprocess.Popen(
          [
            *('unshare', '--map-root-user', '--net', '--mount'),
            *('bash', '-c', _HOLD, 'bash', folder / 'passwd'),
          ],
          # The host ends when this is closed.
          stdin=subprocess.PIPE,
          stdout=subprocess.PIPE,
          text=True,
        )
      )
      assert holder.stdout.readline() == 'ready\n'
      _write(folder / f'{name}.pid', f'{holder.pid}\n')
    yield f'{folder}/bin:{os.environ["PATH"]}'
