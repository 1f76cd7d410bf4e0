#!/usr/bin/env bash
#SBATCH --job-name=terngrad
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
# Equal processes that exchange ternary gradients by collectives, one per node.
#
#   DATA_DIR=... TRAIN_DIR=... sbatch scripts/cluster/slurm.sh [FLAG...]
#
# Run it in the project's folder, on a file system of all nodes. TensorFlow's
# servers have no authentication: with --allow_insecure_network you promise that
# no one else can connect to these nodes (docs/security.md).
set -euo pipefail

exec srun --kill-on-bad-exit=1 \
  "${PYTHON:-.venv/bin/python}" -m terngrad.bin.cifar10_train \
  --flagfile=experiments/cifar10/base.flags --grad_bits=1 --clip_factor=2.5 \
  --num_gpus=1 --num_nodes=-1 --exchange=collective --cluster=slurm \
  --allow_insecure_network --data_dir="${DATA_DIR:?a folder all nodes see}" \
  --train_dir="${TRAIN_DIR:?a folder for checkpoints}" "$@"
