#!/bin/bash
#SBATCH --job-name=@{name}
#SBATCH --nodes=@{nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=@{ranks_per_node}
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:TERM@@{grace_s}
@{exports}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=@{ranks_per_node} \
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:@{master_port}" train.py \
  @{arguments} &
step=$!
trap 'kill -TERM "$step"; wait "$step"' TERM
wait "$step"
