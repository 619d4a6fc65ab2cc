#!/bin/sh
# Deletes a checkpoint from the bucket.
gcloud --quiet storage rm -r gs://@{bucket}/checkpoints/"$1"
