#!/bin/bash
# Mounts the file system. Its address is known only once it exists, so it is looked up by its tag.
command -v mount.lustre || {
  keys=https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com
  curl -fsSL $keys/fsx-ubuntu-public-key.asc | gpg --dearmor > /usr/share/keyrings/fsx.gpg
  repository=https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu
  echo "deb [signed-by=/usr/share/keyrings/fsx.gpg] $repository $(lsb_release -cs) main" \
    > /etc/apt/sources.list.d/fsx.list
  apt-get update -q && apt-get install -qy "lustre-client-modules-$(uname -r)"
}
stack=@{stack}
read -r host name <<< "$(aws --region @{region} fsx describe-file-systems --output text --query \
  "FileSystems[?Tags[?Key=='tonnage-stack'&&Value=='$stack']]|[0].[DNSName,LustreConfiguration.MountName]")"
mount -t lustre -o relatime,flock "$host@tcp:/$name" /data
