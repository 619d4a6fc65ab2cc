#!/bin/sh
# Succeeds once the container says that the job is done.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy list @{models_url}/checkpoints | grep -q "done-$1"
