# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of what agents send to be signed, and of trust bundles (atheris).

Run: `python tests/fuzz/fuzz_requests.py -max_total_time=10`. Input is DER. Anything but a request
of our form, CA certificates, or the error for what is neither is a finding.
"""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["usbdra.pki"]):
    from usbdra.errors import ConfigError, Refused
    from usbdra.pki import authority, trust
    from usbdra.pki.request import make_request, read_request
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.fuzz.harness import fuzz

UID = "6a3d2a6e-6f2f-4e8e-9c56-0f2c35b6d9f1"


def pem(label: str, data: bytes) -> bytes:
    """DER as PEM."""
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode()


def one_input(data: bytes) -> None:
    """The bytes as a request, and as a certificate of a bundle."""
    try:
        request = read_request(pem("CERTIFICATE REQUEST", data))
        again = authority.node_names(request.node, request.addresses)
        if next(iter(again)).value != f"usbdra://node/{request.node}":
            raise AssertionError(f"names of {request.node} are not its own")
    except Refused as error:
        if len(str(error)) > 2 * len(data) + 1000:
            raise AssertionError(f"an error of {len(str(error))} letters") from error
    try:
        trust.read_bundle(pem("CERTIFICATE", data), "the bundle")
    except ConfigError:
        return


if __name__ == "__main__":
    made = x509.load_pem_x509_csr(make_request(authority.new_key(), "a", UID, ["10.0.0.1", "::1"]))
    ca = authority.make_authority("CA", datetime.now(UTC), timedelta(days=1))
    seeds = {
        "request": made.public_bytes(Encoding.DER),
        "authority": ca.cert.public_bytes(Encoding.DER),
    }
    fuzz(one_input, seeds, ["usbdra://node/", "node-a", UID])
