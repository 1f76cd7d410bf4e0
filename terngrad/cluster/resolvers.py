"""Cluster resolvers: TF_CONFIG, hosts file, Slurm, MPI and Kubernetes."""

import json
import os
from collections.abc import Mapping
from typing import Any

from terngrad.cluster import slurm
from terngrad.cluster import spec

_SLURM_NUMBERS = ('SLURM_PROCID', 'SLURM_STEP_NUM_TASKS')
# Open MPI: https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html
# PMI of MPICH, MVAPICH and Intel MPI.
_MPI_RANKS = (
  (
    'OMPI_COMM_WORLD_RANK',
    'OMPI_COMM_WORLD_SIZE',
    'OMPI_COMM_WORLD_LOCAL_RANK',
  ),
  ('PMI_RANK', 'PMI_SIZE', 'MPI_LOCALRANKID'),
)


def from_tf_config(text: str) -> spec.Cluster:
  """Parses the cluster of a TF_CONFIG, as Kubeflow and others write it.

  A task 'chief' or 'master' becomes worker 0, followed by the workers. Tasks
  'evaluator' are ignored.

  Args:
    text: JSON, {"cluster": {job: [address]}, "task": {"type", "index"}}.

  Raises:
    spec.ClusterError: the text has another form, or `spec.make` refuses it.
  """
  try:
    value = json.loads(text)
    jobs = {name: list(some) for name, some in value['cluster'].items()}
    job, index = value['task']['type'], value['task']['index']
    if isinstance(index, str) and index.isdecimal():
      index = int(index)
  except (
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
  ) as error:
    raise spec.ClusterError(
      'TF_CONFIG: expected JSON like {"cluster": {"worker": ["host:2222"]}, '
      '"task": {"type": "worker", "index": 0}}, received '
      f'{spec.quote(text)}. Correct the variable, or unset it.'
    ) from error
  if any(not isinstance(a, str) for some in jobs.values() for a in some):
    raise spec.ClusterError(
      'TF_CONFIG: expected lists of addresses, received something else in '
      f'{spec.quote(text)}. Write every address as "host:port".'
    )
  jobs.pop('evaluator', None)
  return spec.make(*_with_chief(jobs, job, index))


def _with_chief(
  jobs: dict[str, list[str]], job: Any, index: Any
) -> tuple[dict[str, list[str]], Any, Any]:
  """Makes the chief of a TF_CONFIG worker 0; other values are not checked."""
  if job in ('chief', 'master') and not jobs.get(job):
    raise spec.ClusterError(
      f'TF_CONFIG: expected the job {job} of this task in the cluster, '
      f'received {", ".join(map(spec.quote, jobs)) or "no job"}. List it, or '
      'make this task a worker.'
    )
  chiefs = [*jobs.pop('chief', []), *jobs.pop('master', [])]
  if len(chiefs) > 1:
    raise spec.ClusterError(
      f'TF_CONFIG: expected one chief, received {len(chiefs)}. List the others '
      'as workers.'
    )
  if job in ('chief', 'master'):
    if index != 0:
      raise spec.ClusterError(
        f'TF_CONFIG: expected the index 0 of the only {job}, received '
        f'{spec.quote(str(index))}. Correct the index, or list the task as a '
        'worker.'
      )
    job = 'worker'
  elif job == 'worker' and type(index) is int and index >= 0:
    index += len(chiefs)
  if chiefs or 'worker' in jobs:
    jobs['worker'] = chiefs + jobs.get('worker', [])
  return jobs, job, index


def from_hosts_text(text: str, job_name: str, task_id: int) -> spec.Cluster:
  r"""Parses a hosts file with one task per line, `[ps|worker] host:port`.

  Examples:
    >>> from_hosts_text('a:1  # chief\nps b:2', 'worker', 0).jobs
    {'ps': ('b:2',), 'worker': ('a:1',)}

  Args:
    text: text of the file. A # begins a comment. A line without a job is a
      worker.
    job_name: job of this process, 'ps' or 'worker'.
    task_id: index of this process in its job.

  Raises:
    spec.ClusterError: a line cannot be parsed, or `spec.make` refuses it.
  """
  jobs: dict[str, list[str]] = {}
  for number, line in enumerate(text.splitlines(), start=1):
    words = line.partition('#')[0].split()
    if not words:
      continue
    if len(words) > 2 or (len(words) == 2 and words[0] not in spec.JOBS):
      raise spec.ClusterError(
        f'Hosts file, line {number}: expected host:port, worker host:port or '
        f'ps host:port, received {spec.quote(line)}. Write one task a line.'
      )
    job = words[0] if len(words) == 2 else 'worker'
    address = spec.parse_address(words[-1], f'Hosts file, line {number}')
    jobs.setdefault(job, []).append(address)
  return spec.make(jobs, job_name, task_id)


def from_slurm(num_ps: int, port: int) -> spec.Cluster:
  """Reads the cluster of this Slurm job step from the environment.

  Args:
    num_ps: number of parameter servers: the first tasks.
    port: port of the first task on a host; the next task there has the next.

  Raises:
    spec.ClusterError: this is no Slurm job step, or `spec.make` refuses it.
  """
  try:
    rank, tasks = (int(os.environ[name]) for name in _SLURM_NUMBERS)
    this_host = os.environ['SLURMD_NODENAME']
    node_list = os.environ['SLURM_STEP_NODELIST']
    hosts = slurm.hosts(node_list)
    counts = slurm.tasks_per_host(os.environ['SLURM_STEP_TASKS_PER_NODE'])
  except (KeyError, ValueError) as error:
    if isinstance(error, spec.ClusterError):
      raise
    raise spec.ClusterError(
      'Slurm: expected a job step with SLURM_PROCID, SLURM_STEP_NUM_TASKS, '
      'SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE and SLURMD_NODENAME, '
      f'received: {error}. Start the program with srun.'
    ) from error
  if len(hosts) != len(counts) or sum(counts) != tasks or rank >= tasks:
    raise spec.ClusterError(
      f'Slurm: expected {tasks} tasks on the hosts {spec.quote(node_list)}, '
      f'received {sum(counts)} on {len(counts)} hosts; this is task {rank}. '
      'Start the program with srun.'
    )
  addresses = [
    f'{host}:{port + i}'
    for host, count in zip(hosts, counts, strict=True)
    for i in range(count)
  ]
  jobs = {'ps': addresses[:num_ps], 'worker': addresses[num_ps:]}
  job, index = ('ps', rank) if rank < num_ps else ('worker', rank - num_ps)
  cluster = spec.make(jobs, job, index)
  if spec.host_of(cluster.address) != this_host:
    raise spec.ClusterError(
      f'Slurm: expected task {rank} on {spec.host_of(cluster.address)}, as the '
      f'first tasks run on the first host, received {this_host}. Start the '
      'program with `srun --distribution=block`, or list the hosts in a file, '
      '--cluster=FILE.'
    )
  return cluster


def mpi_ranks(environment: Mapping[str, str]) -> tuple[int, int, int]:
  """Reads the ranks that mpirun gives a process.

  Args:
    environment: environment variables, of Open MPI or of MPICH and its
      relatives.

  Returns:
    (rank, number of processes, rank among the processes of this host).

  Raises:
    spec.ClusterError: the process was not started by mpirun.
  """
  for names in _MPI_RANKS:
    texts = [environment.get(name, '') for name in names]
    if all(text.isdecimal() and len(text) < 8 for text in texts):
      rank, size, local = map(int, texts)
      return rank, size, local
  known = ' or '.join(', '.join(names) for names in _MPI_RANKS)
  raise spec.ClusterError(
    f'MPI: expected numbers in {known}, received none. Start the program with '
    'mpirun.'
  )


def from_kubernetes(
  labels: Mapping[str, str], port: int, node_address: str, client: Any = None
) -> spec.Cluster:
  """Finds the cluster of running pods with TensorFlow's resolver.

  The resolver names pods by the address of their node. So each pod needs
  `hostNetwork` and a separate node.

  Args:
    labels: for each job the label that selects its pods, 'app=train'.
    port: port of every task.
    node_address: address of the node that this pod runs on.
    client: Kubernetes client; None for the package's, from its configuration.

  Raises:
    spec.ClusterError: pods are missing or not running, or `spec.make` refuses
      the addresses.
  """
  # Programs on JAX and PyTorch read TF_CONFIG without TensorFlow.
  import tensorflow as tf

  try:
    resolver = tf.distribute.cluster_resolver.KubernetesClusterResolver(
      {job: [label] for job, label in labels.items()},
      tf_server_port=port,
      override_client=client,
    )
    found = resolver.cluster_spec().as_dict()
  except Exception as error:  # of the client, which may not be installed
    raise spec.ClusterError(
      'Kubernetes: expected running pods and the package kubernetes, received: '
      f'{error}. Wait until all pods run, or use TF_CONFIG.'
    ) from error
  this_address = f'{node_address}:{port}'
  for job, addresses in found.items():
    if this_address in addresses:
      return spec.make(found, job, addresses.index(this_address))
  raise spec.ClusterError(
    f'Kubernetes: expected a pod on {spec.quote(this_address)}, where this pod '
    f'runs, received {spec.quote(found)}. Set hostNetwork for the pods, and '
    'run each on a separate node.'
  )
