"""Asks the rate limit service as Envoy does, and checks each answer. Takes the address of the service.

The limits are those of `tests/interop/rate_limit_calls`.
"""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub
from envoy.type.v3.ratelimit_unit_pb2 import RateLimitUnit
from google.protobuf.wrappers_pb2 import UInt64Value

OK, OVER_LIMIT = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT
Unit = RateLimitResponse.RateLimit.Unit

failures = []
checks = 0


def expect(what, expected, seen):
    global checks
    checks += 1
    if expected != seen:
        print(f"  NOT {what}: {seen} in place of {expected}")
        failures.append(what)


def descriptor(*entries, hits=None, limit=None):
    return RateLimitDescriptor(
        entries=[RateLimitDescriptor.Entry(key=key, value=value) for key, value in entries],
        hits_addend=None if hits is None else UInt64Value(value=hits),
        limit=limit and RateLimitDescriptor.RateLimitOverride(requests_per_unit=limit[0], unit=limit[1]),
    )


def main():
    service = RateLimitServiceStub(channel := grpc.insecure_channel(sys.argv[1]))
    grpc.channel_ready_future(channel).result(timeout=20)

    def ask(*descriptors, domain="test-domain", **more):
        return service.ShouldRateLimit(RateLimitRequest(domain=domain, descriptors=descriptors, **more), timeout=20)

    def codes(answer):
        return answer.overall_code, [status.code for status in answer.statuses]

    def refused(*descriptors, **more):
        try:
            return ask(*descriptors, **more)
        except grpc.RpcError as error:
            return error.code(), error.details()

    # Which limit a descriptor has: the number and the unit.
    for entries, expected in [
        ([("key1", "value1")], None),
        ([("key1", "value1"), ("subkey1", "x")], (5, "SECOND")),
        ([("key1", "value1"), ("subkey1", "subvalue1")], (10, "SECOND")),
        ([("key1", "other"), ("subkey1", "x")], None),
        ([("key2", "a")], (20, "MINUTE")),
        ([("key2", "value2")], (30, "MINUTE")),
        ([("key2", "value3")], None),
        ([("key5", "value5")], (15, "DAY")),
        ([("key5", "value5"), ("subkey5", "subvalue5")], (25, "DAY")),
        ([("key5", "value5"), ("subkey5", "other")], None),
        ([("wild", "foo1")], (20, "MINUTE")),
        ([("wild", "foo")], (20, "MINUTE")),
        ([("midWild", "barxb")], (20, "MINUTE")),
        ([("midWild", "bar")], None),
        ([("multiWild", "fooXbarYbaz")], (20, "MINUTE")),
        ([("file", "test1")], (50, "HOUR")),
        ([("file", "test2")], (100, "HOUR")),
        ([("none", "x")], (0, "WEEK")),
        ([("unknown", "x")], None),
    ]:
        answer = ask(descriptor(*entries))
        (status,) = answer.statuses
        limit = status.current_limit
        seen = (limit.requests_per_unit, Unit.Name(limit.unit)) if status.HasField("current_limit") else None
        expect(f"the limit of {entries}", expected, seen)
        expect(f"whether {entries} passes", OVER_LIMIT if entries[0][0] == "none" else OK, answer.overall_code)
    expect("a counter that values share", 98, ask(descriptor(("file", "test3"))).statuses[0].limit_remaining)
    free = ask(descriptor(("free", "x"))).statuses[0]
    expect("no limit at all", (2**32 - 1, False), (free.limit_remaining, free.HasField("current_limit")))
    nothing = ask(descriptor(("tenant", "x")), domain="other")
    expect("an unknown domain", (OK, [OK]), codes(nothing))

    # One limit replaces another of the same request.
    for number in (1, 2):
        answer = ask(descriptor(("k1", "v1"), ("user", "u")), descriptor(("k2", "v2"), ("user", "u")))
        expect("the one that is replaced", (OK, False), (answer.statuses[0].code, answer.statuses[0].HasField("current_limit")))
        expect("the one in its place", 10 - number, answer.statuses[1].limit_remaining)
    expect("what was replaced is not charged", 4, ask(descriptor(("k1", "v1"), ("user", "u"))).statuses[0].limit_remaining)

    # All or nothing, with what remains, the wait, and the headers.
    gold, export = ("tenant", "gold"), ("path", "/export")
    expect("both pass", (OK, [OK, OK]), codes(ask(descriptor(gold), descriptor(export))))
    over = ask(descriptor(gold), descriptor(export))
    expect("one is over", (OVER_LIMIT, [OK, OVER_LIMIT]), codes(over))
    wait = over.statuses[1].duration_until_reset.seconds
    expect("a wait of an hour at most", True, 1 <= wait <= 3600)
    headers = {header.key.lower(): header.value for header in over.response_headers_to_add}
    expect("Retry-After is that wait", str(wait), headers.get("retry-after"))
    expect("the other headers", {"ratelimit", "ratelimit-policy", "retry-after"}, set(headers))
    expect("a refused request charges nothing", 2, ask(descriptor(gold, hits=0)).statuses[0].limit_remaining)

    # How many.
    expect("hits of the request", (OK, [OK]), codes(ask(descriptor(gold), hits_addend=2)))
    expect("a look where nothing is left", (OVER_LIMIT, [OVER_LIMIT]), codes(ask(descriptor(gold, hits=0))))
    expect("more than there are", (OVER_LIMIT, [OVER_LIMIT]), codes(ask(descriptor(("tenant", "new"), hits=4))))
    expect("hits of the descriptor come first", 1, ask(descriptor(("tenant", "new"), hits=2), hits_addend=9).statuses[0].limit_remaining)

    # The limit of the caller.
    own = descriptor(("any", "x"), limit=(1, RateLimitUnit.DAY))
    answer = ask(own)
    told = answer.statuses[0].current_limit
    expect("an override", (OK, 1, "DAY"), (answer.overall_code, told.requests_per_unit, Unit.Name(told.unit)))
    expect("an override that is used up", OVER_LIMIT, ask(own).overall_code)

    # Shadow, quotas, and what is told afterwards.
    shadow = descriptor(("shadow", "x"))
    answers = [ask(shadow), ask(shadow)]
    expect("shadow passes", [(OK, [OK])] * 2, [codes(answer) for answer in answers])
    expect("shadow counts", [0, 0], [answer.statuses[0].limit_remaining for answer in answers])
    quotas = [descriptor(("model", name)) for name in "ab"]
    expect("a quota is used", OK, ask(quotas[0]).overall_code)
    answer = ask(*quotas)
    expect("another quota has room", (OK, [OVER_LIMIT, OK]), codes(answer))
    expect("which", "b", answer.dynamic_metadata["metadata"]["pool"])
    expect("no quota has room", (OVER_LIMIT, [OVER_LIMIT, OVER_LIMIT]), codes(ask(*quotas)))
    tokens = ("tokens", "x")
    expect("tokens: a look", OK, ask(descriptor(tokens, hits=0)).overall_code)
    ask(descriptor(tokens, hits=250))
    expect("tokens: past the limit", OVER_LIMIT, ask(descriptor(tokens, hits=0)).overall_code)

    # Mistakes of a request.
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for what, answer in [
        ("domain is empty", refused(descriptor(gold), domain="")),
        ("descriptors is empty", refused()),
        ("descriptors[0].entries is empty", refused(descriptor())),
        ("descriptors[0].entries[0].key is empty", refused(descriptor(("", "x")))),
        ("limit.unit is UNKNOWN", refused(descriptor(gold, limit=(1, RateLimitUnit.UNKNOWN)))),
        ("descriptors has 101", refused(*[descriptor(gold)] * 101)),
    ]:
        expect(what, (invalid, True), (answer[0], answer[1].startswith(what)))

    print(f"grpcio {grpc.__version__} asks the rate limit service: {checks - len(failures)} of {checks} answers are right")
    sys.exit(bool(failures))


main()
