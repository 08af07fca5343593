"""Calls until it is refused, reads why, waits as told, and passes: by grpcio, and over gRPC-Web.

Takes the name of an example, `grpc` or `axum_and_tonic`, and its address.
"""

import base64
import http.client
import sys
import time
from urllib.parse import urlsplit

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

BURST = 5
RATE = 5
EMPTY = b"\0\0\0\0\0"

failures = []


def expect(what, holds, seen=""):
    print(f"  {'ok' if holds else 'NOT'}: {what} {seen}".rstrip())
    if not holds:
        failures.append(what)


def details(status, kind):
    """Those of this kind, as the library that Google publishes reads them."""
    found = []
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            found.append(message)
    return found


def check_status(status, name, longest):
    """Returns the wait."""
    expect(f"{name}: code and message", status.code == code_pb2.RESOURCE_EXHAUSTED and status.message == "rate limit exceeded", status.message)
    retries = details(status, error_details_pb2.RetryInfo)
    waits = [retry.retry_delay.ToTimedelta().total_seconds() for retry in retries]
    expect(f"{name}: RetryInfo", len(waits) == 1 and 0 < waits[0] <= longest, waits)
    quotas = details(status, error_details_pb2.QuotaFailure)
    violations = [violation for quota in quotas for violation in quota.violations]
    told = [(violation.subject, violation.description) for violation in violations]
    expect(f"{name}: QuotaFailure", told == [("clientip:127.0.0.1", "peer: 5 requests per 1 s")], told)
    return waits[0] if waits else 1


def until_refused(call):
    """Calls until a call is refused; how many were made, in how long, and the refusal."""
    started = time.monotonic()
    for made in range(1, 201):
        refusal = call()
        if refusal is not None:
            return made, time.monotonic() - started, refusal
    sys.exit("grpc: 200 calls, and none was refused")


def unary(stub):
    def call():
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        except grpc.RpcError as error:
            return error
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        return None

    return call


def streaming(stub):
    def call():
        answers = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        try:
            next(answers)
        except grpc.RpcError as error:
            return error
        answers.cancel()
        return None

    return call


def by_grpcio(address):
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        grpc.channel_ready_future(channel).result(timeout=20)
        for name, call in (("unary", unary(stub)), ("streaming", streaming(stub))):
            # The earlier charges are given back.
            time.sleep(BURST / RATE)
            made, took, error = until_refused(call)
            most = BURST + 1 + int(took * RATE)
            expect(f"{name}: refused at call 6, or later on a slow machine", BURST < made <= most, f"({made}, {took:.3f} s)")
            expect(f"{name}: RESOURCE_EXHAUSTED", error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error.code())
            # Refuses details whose code or message is not that of the call.
            wait = check_status(rpc_status.from_call(error), name, 1 / RATE)
            fields = dict(error.trailing_metadata())
            expect(f"{name}: fields", fields.get("ratelimit") == '"peer";r=0;t=1', fields.get("ratelimit"))
            time.sleep(wait)
            expect(f"{name}: passes after {wait:.6f} s", call() is None)


def post(address, content_type, body):
    # Each on a connection of its own: a server may close one whose request it has not read to the end.
    connection = http.client.HTTPConnection(address, timeout=20)
    headers = {"content-type": content_type, "accept": content_type, "x-grpc-web": "1"}
    connection.request("POST", "/grpc.health.v1.Health/Check", body, headers)
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer, read


def frames(text):
    """The bytes of base64 that was written in several parts, each with its padding."""
    fours = (text[at : at + 4] for at in range(0, len(text), 4))
    return b"".join(map(base64.b64decode, fours))


def by_grpc_web(address):
    for content_type in ("application/grpc-web+proto", "application/grpc-web-text+proto"):
        name = content_type.partition("/")[2]
        time.sleep(BURST / RATE)
        is_text = "text" in content_type
        body = base64.b64encode(EMPTY) if is_text else EMPTY

        def call():
            answer, read = post(address, content_type, body)
            if answer.getheader("grpc-status") is not None:
                return answer, read
            read = frames(read) if is_text else read
            assert b"\x80" in read and b"grpc-status:0" in read.replace(b" ", b""), read
            return None

        made, took, (answer, read) = until_refused(call)
        most = BURST + 1 + int(took * RATE)
        expect(f"{name}: refused at call 6, or later on a slow machine", BURST < made <= most, f"({made}, {took:.3f} s)")
        seen = (answer.version, answer.status, answer.getheader("content-type"), answer.getheader("grpc-status"), read)
        expect(f"{name}: all in the header section", seen == (11, 200, content_type, "8", b""), seen)
        sent = answer.getheader("grpc-status-details-bin", "")
        status = status_pb2.Status.FromString(base64.b64decode(sent + "=" * (-len(sent) % 4)))
        wait = check_status(status, name, 1 / RATE)
        time.sleep(wait)
        expect(f"{name}: passes after {wait:.6f} s", call() is None)


def one_budget(address):
    """Three at once, of pages and calls together."""

    def page():
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    with grpc.insecure_channel(address) as channel:
        call = unary(health_pb2_grpc.HealthStub(channel))
        passed = [page().status, call(), page().status]
        expect("one port: a page, a call and a page pass", passed == [200, None, 200], passed)
        refused = page()
        expect("one port: the next page is refused as HTTP", refused.status == 429, refused.status)
        kind = refused.getheader("content-type")
        expect("one port: with a problem", kind == "application/problem+json", kind)
        refused = call()
        code = refused.code() if refused else None
        expect("one port: the next call as gRPC", code == grpc.StatusCode.RESOURCE_EXHAUSTED, code)


def main():
    kind, url = sys.argv[1:]
    address = urlsplit(url).netloc
    if kind == "grpc":
        by_grpcio(address)
        by_grpc_web(address)
    else:
        one_budget(address)
    print(f"grpcio {grpc.__version__}, {kind}: {len(failures)} failed")
    sys.exit(bool(failures))


main()
