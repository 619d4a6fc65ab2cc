#!/bin/bash
# Mounts the file system, whose address is known only once it exists.
command -v mount.lustre || {
  curl -fsSL https://us-apt.pkg.dev/doc/repo-signing-key.gpg \
    | gpg --dearmor > /usr/share/keyrings/lustre.gpg
  repository=https://us-apt.pkg.dev/projects/lustre-client-binaries
  echo "deb [signed-by=/usr/share/keyrings/lustre.gpg] $repository" \
    "lustre-client-ubuntu-$(lsb_release -cs) main" > /etc/apt/sources.list.d/lustre.list
  apt-get update -q
  apt-get install -qy "lustre-client-modules-$(uname -r)" lustre-client-utils
}
mount -t lustre "$(gcloud lustre instances describe @{file_system} --location @{zone} \
  --format='value(mountPoint)')" /data
