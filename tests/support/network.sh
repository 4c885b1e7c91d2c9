#!/usr/bin/env bash
# Simulates a network of machines by network namespaces joined by a bridge. Needs root and iproute2.
# NAME has at most 8 characters, the last a letter.
#
#   network.sh up NAME MACHINES [MEGABITS]  create it, with links of that speed
#   network.sh ranks NAME COMMAND...  run it on each machine, as torchrun would
#   network.sh link NAME MACHINE up|down  connect or disconnect a machine
#   network.sh down NAME  remove it
#
# Machine 0 has the address 10.77.0.1, the next one 10.77.0.2.
set -euo pipefail

machines() { ip netns list | grep -o "^$1[0-9]\+" | sort -V; }

up() {
  local name=$1 count=$2 megabits=${3:-} i
  down "$name"
  ip link add "$name" type bridge
  ip link set "$name" up
  for ((i = 0; i < count; i++)); do
    local machine=$name$i port=${name}p$i
    ip netns add "$machine"
    ip link add "$port" type veth peer name eth0 netns "$machine"
    ip link set "$port" master "$name" up
    ip -n "$machine" addr add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "$machine" link set eth0 up
    ip -n "$machine" link set lo up
    [ -n "$megabits" ] || continue
    local limit="root tbf rate ${megabits}mbit burst 256kb latency 100ms"
    # shellcheck disable=SC2086
    tc qdisc add dev "$port" $limit
    # shellcheck disable=SC2086
    tc -n "$machine" qdisc add dev eth0 $limit
  done
}

# Deletes the links by name. The kernel removes a namespace's links only some time later; until
# then, their names are in use.
down() {
  local machine
  for machine in $(machines "$1"); do
    ip link del "$1p${machine#"$1"}" 2>/dev/null || true
    ip netns del "$machine"
  done
  ! ip link show "$1" >/dev/null 2>&1 || ip link del "$1"
}

# From the inside, so that it also works from every machine of the network.
link() { ip -n "$1$2" link set eth0 "$3"; }

ranks() {
  local name=$1 all=() pids=() failed=0 i pid
  shift
  mapfile -t all < <(machines "$name")
  for i in "${!all[@]}"; do
    RANK=$i LOCAL_RANK=0 WORLD_SIZE=${#all[@]} GLOO_SOCKET_IFNAME=eth0 \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
      ip netns exec "${all[$i]}" "$@" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return $failed
}

"$@"
