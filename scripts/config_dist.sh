# shellcheck shell=bash disable=SC2034
# What `terngrad launch --config=FILE` (scripts/run_dist.sh) starts, and where.
# It is read, never executed: names and words only, of which nothing is expanded
# but a ~/ that begins a path, on the host that uses it. Words with spaces are in
# quotes. docs/distributed.md goes through three machines.

# host:port of each task. A parameter server and a worker may share a host, with
# a port each. Hosts are reached by ssh but for localhost, which needs none.
# PS_HOSTS=() makes the workers equal processes that exchange by collectives.
PS_HOSTS=(localhost:2222)
WORKER_HOSTS=(
  localhost:2224
  localhost:2226
)

# One a worker: its GPUs by their numbers, '0' or '0,1'; '' for none.
WORKER_DEVICES=('' '')

# One a worker: the folder of its part of the data, as scripts/split_dataset.sh
# makes it; '' for none.
DATA_DIR=(
  ~/dataset/cifar10-data/worker_0_of_2
  ~/dataset/cifar10-data/worker_1_of_2
)

# What starts one task. A name alone is of the project's folder scripts/, at the
# same path on all hosts.
WORKER_SCRIPT=run_single_worker_cifarnet.sh
PS_SCRIPT=run_single_ps_cifar10.sh

# A folder that exists on all hosts, at the same path. Logs, PID files and
# checkpoints go to a folder of the experiment in it.
WORKSPACE=~/dataset/results/cifar10

# TensorFlow's gRPC has no authentication and its servers listen on all
# interfaces: whoever reaches a port can run code there. So hosts other than
# localhost need true here, and that is a promise that nobody else can reach
# them (docs/security.md). Write the reason beside it.
ALLOW_INSECURE_NETWORK=false
