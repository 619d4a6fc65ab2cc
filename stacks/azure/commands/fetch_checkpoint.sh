#!/bin/sh
# Copies a checkpoint from the container.
mkdir -p @{checkpoints}/"$1"
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync @{models_url}/checkpoints/"$1" @{checkpoints}/"$1" \
  --recursive
