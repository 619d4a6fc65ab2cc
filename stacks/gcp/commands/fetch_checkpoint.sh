#!/bin/sh
# Copies a checkpoint from the bucket.
mkdir -p @{checkpoints}/"$1"
gcloud storage rsync -r gs://@{bucket}/checkpoints/"$1" @{checkpoints}/"$1"
