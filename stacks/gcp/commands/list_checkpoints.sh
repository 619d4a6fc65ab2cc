#!/bin/sh
# Prints the names of the checkpoints in the bucket.
gcloud storage ls gs://@{bucket}/checkpoints/ | sed -n 's|.*/\(iter_[0-9]*\)/$|\1|p'
