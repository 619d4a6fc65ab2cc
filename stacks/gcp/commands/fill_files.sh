#!/bin/sh
# Copies the dataset into the file system.
gcloud --quiet lustre instances import-data @{file_system} --location @{zone} \
  --gcs-path-uri @{dataset} --lustre-path /dataset
