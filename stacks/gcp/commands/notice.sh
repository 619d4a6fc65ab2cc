#!/bin/sh
# Succeeds once Google Cloud has said that it takes this machine back.
curl -sH Metadata-Flavor:Google \
  http://metadata.google.internal/computeMetadata/v1/instance/preempted | grep -q TRUE
