# SPDX-License-Identifier: Apache-2.0
"""Runs in an agent's container: calls the agent as the kubelet does, and takes the times.

    guest_kubelet.py '{"rounds": 50, "pause": 2.0, "claims": [{"namespace", "name", "uid"}, ...]}'

A round prepares all claims at once, each by a call of its own as for pods of their own, then gives
them back, then waits `pause` seconds, in which the devices go back to their own drivers. Prints
JSON: a list of {"prepare", "unprepare"} with the seconds of each claim's call, in the order given,
and "both", the seconds until all were prepared. Needs what the agent's image has.
"""

import glob
import json
import os
import sys
import time

import grpc
from google.protobuf.message_factory import GetMessageClass

from usbdra._pb import dra_v1_pb2

LIMIT_S = 60.0


def method(channel, name):
    """One method of the service, ready to be called."""
    service = dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
    found = service.methods_by_name[name]
    request, answer = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
    call = channel.unary_unary(
        f"/{service.full_name}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )
    return request, call


def at_once(request, call, claims):
    """Call for each claim; the seconds of each, and of all together."""
    took = {}
    started = time.monotonic()
    futures = {}
    for claim in claims:
        future = call.future(request(claims=[claim]), timeout=LIMIT_S)
        uid = claim["uid"]
        future.add_done_callback(lambda _, uid=uid: took.setdefault(uid, time.monotonic()))
        futures[uid] = future
    for uid, future in futures.items():
        error = future.result().claims[uid].error
        if error:
            raise SystemExit(f"claim {uid}: {error}")
    while len(took) < len(futures):  # a callback may still be under way
        time.sleep(0.001)
    seconds = [took[claim["uid"]] - started for claim in claims]
    return seconds, max(seconds)


def main(order):
    """All rounds."""
    pod = os.environ["POD_UID"]
    (path,) = glob.glob(f"/var/lib/kubelet/plugins/*/dra-{pod}-*.sock")
    samples = []
    with grpc.insecure_channel(f"unix:{path}") as channel:
        grpc.channel_ready_future(channel).result(LIMIT_S)
        prepare = method(channel, "NodePrepareResources")
        unprepare = method(channel, "NodeUnprepareResources")
        for _ in range(order["rounds"]):
            try:
                each, both = at_once(*prepare, order["claims"])
            finally:
                back, _ = at_once(*unprepare, order["claims"])
            samples.append({"prepare": each, "both": both, "unprepare": back})
            time.sleep(order["pause"])
    return samples


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
