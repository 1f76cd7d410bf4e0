# shellcheck shell=bash disable=SC2034
# What `terngrad launch --config=FILE` (scripts/run_dist.sh) starts, and where.
# The file is read, never executed. It has names and words only. A ~/ at the
# beginning of a path is the home on the host that uses it. Put words with spaces
# in quotes. docs/distributed.md explains an example with three machines.

# host:port of each task. A parameter server and a worker may share a host, with
# different ports. ssh connects to all hosts except localhost.
# PS_HOSTS=() makes the workers equal processes that exchange by collectives.
PS_HOSTS=(localhost:2222)
WORKER_HOSTS=(
  localhost:2224
  localhost:2226
)

# For each worker the numbers of its GPUs, '0' or '0,1'; '' for none.
WORKER_DEVICES=('' '')

# For each worker the folder with its part of the data, which
# scripts/split_dataset.sh makes; '' for none.
DATA_DIR=(
  ~/dataset/cifar10-data/worker_0_of_2
  ~/dataset/cifar10-data/worker_1_of_2
)

# The script that starts one task. A name without a folder is in the project's
# folder scripts/, at the same path on all hosts.
WORKER_SCRIPT=run_single_worker_cifarnet.sh
PS_SCRIPT=run_single_ps_cifar10.sh

# A folder that exists on all hosts, at the same path. Each experiment writes its
# logs, PID files and checkpoints to a folder in it.
WORKSPACE=~/dataset/results/cifar10

# TensorFlow's gRPC has no authentication and its servers listen on all
# interfaces: everyone who can connect to a port can run code there. So hosts
# other than localhost need true here. With it you promise that no one else can
# connect to them (docs/security.md). Write the reason beside it.
ALLOW_INSECURE_NETWORK=false
