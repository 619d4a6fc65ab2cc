#!/bin/sh
# Copies the dataset into the file system.
mkdir -p /data/dataset
AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy copy @{dataset}'/*' /data/dataset --recursive
