#!/bin/sh
# Copies the checkpoints of this node to the container.
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy sync @{checkpoints} @{models_url}/checkpoints --recursive
