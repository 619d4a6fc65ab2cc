#!/bin/bash
# Prepares a machine: limits, containers that reach the accelerators, and a disk at /models.
set -euo pipefail
exec > >(tee -a /var/log/tonnage.log) 2>&1
mkdir -p /etc/tonnage /opt/tonnage /models
printf '* - memlock unlimited\n* - nofile 1048576\n' > /etc/security/limits.d/99-tonnage.conf
if ! command -v docker >/dev/null; then
  apt-get update -q && apt-get install -qy docker.io
fi
if ! command -v nvidia-ctk >/dev/null; then
  base=https://nvidia.github.io/libnvidia-container
  curl -fsSL $base/gpgkey | gpg --dearmor -o /usr/share/keyrings/nvidia-container.gpg
  curl -fsSL $base/stable/deb/nvidia-container-toolkit.list \
    | sed 's#deb #deb [signed-by=/usr/share/keyrings/nvidia-container.gpg] #' \
    > /etc/apt/sources.list.d/nvidia-container.list
  apt-get update -q && apt-get install -qy nvidia-container-toolkit
  nvidia-ctk runtime configure --runtime=docker && systemctl restart docker
fi
if mountpoint -q /opt/dlami/nvme; then
  mkdir -p /opt/dlami/nvme/models && mount --bind /opt/dlami/nvme/models /models
elif ! mountpoint -q /models; then
  # Local NVMe by its exact model; else a data disk: a whole disk without partitions or a mount.
  mapfile -t disks < <(lsblk -dnpo NAME,MODEL | awk '
    $2 == "nvme_card" || /Amazon EC2 NVMe Instance Storage/ || /Microsoft NVMe Direct Disk/ {
      print $1
    }')
  if [ "${#disks[@]}" = 0 ]; then
    for disk in $(lsblk -dnpo NAME,TYPE | awk '$2 == "disk" {print $1}'); do
      if [ "$(lsblk -no NAME "$disk" | wc -l)" = 1 ] && [ -z "$(lsblk -dno FSTYPE "$disk")" ]; then
        disks=("$disk")
      fi
    done
  fi
  if [ "${#disks[@]}" -gt 1 ]; then
    mdadm --create /dev/md0 --level=0 --raid-devices="${#disks[@]}" "${disks[@]}" --run
    disks=(/dev/md0)
  fi
  if [ "${#disks[@]}" = 1 ]; then
    mkfs.ext4 -q -F "${disks[0]}" && mount "${disks[0]}" /models
  fi
fi
