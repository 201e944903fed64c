# SPDX-License-Identifier: Apache-2.0
"""Ends node a's exporter process at exact steps of one device's export.

Owns the order of signals: agent and exporter are stopped in turn, and each is let go until its
message waits in the other's queue, so no step depends on how fast a machine is.
"""

from __future__ import annotations

from tests.cluster.attacks.scene import Scene
from tests.cluster.leftovers import AGENT

UID = 64241
# ss(8): type, state, bytes in the receive queue, bytes in the send queue, local address and inode,
# peer's address and inode. The agent's end has the socket's path, the exporter's is its peer.
_SCRIPT = rf"""
set -eu
agent=$(pgrep -f '[u]{AGENT[1:]}')
exporter=$(pgrep -u {UID} -f '[u]sbdra exporter')
trap 'kill -CONT $agent' EXIT
asked() {{
  until ss -xH | awk '$5 ~ /usbdra-exporter/ && $3 > 0 {{n = 1}} END {{exit !n}}'
  do sleep 0.05; done
}}
answered() {{
  until ss -xH | awk '$5 ~ /usbdra-exporter/ {{peer[$8]}} {{queue[$6] = $3}}
      END {{for (p in peer) n += queue[p]; exit !n}}'; do sleep 0.05; done
}}
status() {{ [ "$(cat /sys/bus/usb/devices/$1/usbip_status)" = $2 ]; }}
"""
_GRANTED = """
asked; kill -STOP $exporter; kill -CONT $agent; answered
"""
_HANDED_OVER = f"""
{_GRANTED}
kill -STOP $agent; kill -CONT $exporter
{_GRANTED}
"""
STEPS = {
    "asked": "asked",
    "granted": f"{_GRANTED} status $busid 1",
    "handed over": f"{_HANDED_OVER} status $busid 2",
}
"""What has happened when the exporter ends; what the agent was asked it finishes afterwards."""


def stop_agent(scene: Scene) -> None:
    """Whatever the agent is asked waits from now on."""
    scene.a.sh(f"kill -STOP $(pgrep -f '[u]{AGENT[1:]}')")


def kill_at(scene: Scene, step: str) -> None:
    """With the agent stopped and a device asked for: end the exporter at a step, go on."""
    script = f"{_SCRIPT} busid={scene.busid}\n{STEPS[step]}\nkill -9 $exporter"
    scene.a.sh(script, timeout=60)


def kill(scene: Scene) -> None:
    """End the exporter wherever it is."""
    scene.a.sh(f"kill -9 $(pgrep -u {UID} -f '[u]sbdra exporter')")
