# SPDX-License-Identifier: Apache-2.0
"""Ends node a's exporter process at exact steps of one device's export.

Owns the order of signals: agent and exporter are stopped in turn, and each is let go until its
message waits in the other's queue, so no step depends on how fast a machine is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.cluster.attacks.scene import Scene
from tests.cluster.leftovers import AGENT

UID = 64241
# ss(8) has of each socket the bytes that wait in it, and those that it sent and nobody took yet.
_SCRIPT = rf"""
set -eu
agent=$(pgrep -f '[u]{AGENT[1:]}')
exporter=$(pgrep -u {UID} -f '[u]sbdra exporter')
trap 'kill -CONT $agent' EXIT
queue() {{ ss -xpH | awk -v me="pid=$exporter," '$0 ~ me {{n += $'$1'}} END {{exit !n}}'; }}
asked() {{ until queue 4; do sleep 0.05; done; }}
answered() {{ until queue 3; do sleep 0.05; done; }}
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


@dataclass(frozen=True)
class Step:
    """What has happened when the exporter ends, and what becomes of it.

    Attributes:
        name: in the words of docs/exporter.md.
        script: from the request's arrival to the step.
        decision: the agent's last word on it in the audit log.
        cut_off: whether the peer's connection ends with the exporter.
    """

    name: str
    script: str
    decision: str
    cut_off: bool = True


STEPS = (
    Step("while a device is being bound", "asked", "abandoned"),
    Step("between grant and hand-over", f"{_GRANTED} status $busid 1", "abandoned"),
    Step("before the answer", f"{_HANDED_OVER} status $busid 2", "linked", cut_off=False),
)


def stop_agent(scene: Scene) -> None:
    """Whatever the agent is asked waits from now on."""
    scene.a.sh(f"kill -STOP $(pgrep -f '[u]{AGENT[1:]}')")


def kill_at(scene: Scene, step: Step) -> None:
    """With the agent stopped and a device asked for: end the exporter at a step, go on."""
    script = f"{_SCRIPT} busid={scene.busid}\n{step.script}\nkill -9 $exporter"
    scene.a.sh(script, timeout=60)


def kill(scene: Scene) -> None:
    """End the exporter wherever it is."""
    scene.a.sh(f"kill -9 $(pgrep -u {UID} -f '[u]sbdra exporter')")
