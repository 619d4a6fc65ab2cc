#!/bin/sh
# Prints the names of the checkpoints in the container.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy list @{models_url}/checkpoints \
  | sed -n 's|.*\(iter_[0-9]*\)/.*|\1|p' | sort -u
