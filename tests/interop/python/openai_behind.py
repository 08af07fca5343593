"""openai through ratelimitd to scripted_model.py: it gets what the model has sent, and waits as it is told.

Takes the address of the server, with the limits of tests/interop/model, and that of the model.
"""

import json
import sys
import time
import urllib.request

import openai

TOKENS = 1000
# What the server takes for the bytes of a prompt: the model, the role and the question.
PROMPT = (len("parrot") + len("user") + len("one two three four") + 3) // 4
# The longest wait of a window of five seconds.
LONGEST = 5


def create(client, most, **options):
    question = [{"role": "user", "content": "one two three four"}]
    return client(model="parrot", messages=question, max_tokens=most, **options)


def client(base, key, answers, **options):
    """A client that notes each answer as it was sent, and when."""

    def note(response):
        answers.append((response.status_code, response.headers, time.monotonic()))

    http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    return openai.OpenAI(api_key=key, base_url=base, http_client=http, **options)


def main():
    url, model = sys.argv[1:]
    wrong = []

    def expect(what, seen):
        if not seen:
            wrong.append(what)

    def last():
        with urllib.request.urlopen(f"{model}/last") as answer:
            return json.load(answer)

    # While a request is under way it is charged its estimate, and then what it has used.
    answers = []
    ann = client(f"{url}/v1", "ann", answers, max_retries=0)
    used = 0

    def is_charged(most, cost):
        nonlocal used
        status, headers, _ = answers[-1]
        left = TOKENS - used - PROMPT - most
        told = headers["ratelimit"]
        expect(f"{status} {told}, {left} left", status == 200 and f"r={left};" in told)
        used += cost

    for _ in range(10):
        usage = create(ann.chat.completions.create, 10).usage
        expect(f"usage of {usage}", (usage.prompt_tokens, usage.total_tokens) == (4, 14))
        is_charged(10, 14)

    # A stream that is not asked for its usage: the model tells it to the limits, and the client does not see it.
    streamed = ann.chat.completions.with_streaming_response.create
    with create(streamed, 6, stream=True) as answer:
        received = answer.read().decode()
    is_charged(6, 10)
    seen = last()
    sent = [event for event in seen["sent"].split("\n\n") if '"choices": []' not in event]
    expect("the server has not asked", seen["asked"]["stream_options"] == {"include_usage": True})
    expect(f"of {seen['sent']} arrived {received}", received == "\n\n".join(sent) != seen["sent"])
    # Iteration ends before the answer does, so that the charge of this key may come later.
    eve = client(f"{url}/v1", "eve", [], max_retries=0)
    chunks = list(create(eve.chat.completions.create, 6, stream=True))
    words = [chunk.choices[0].delta.content for chunk in chunks]
    expect(f"streamed {words}", words == ["one ", "two ", "three ", "four ", "one ", "two ", None])
    expect("an unasked usage", all(chunk.usage is None for chunk in chunks))

    # One that is.
    asks = {"stream": True, "stream_options": {"include_usage": True}}
    with create(streamed, 6, **asks) as answer:
        received = answer.read().decode()
    is_charged(6, 10)
    expect(f"of {last()['sent']} arrived {received}", received == last()["sent"])
    usage = [chunk.usage for chunk in create(eve.chat.completions.create, 6, **asks)][-1]
    expect(f"usage of {usage}", usage is not None and usage.total_tokens == 10)
    create(ann.chat.completions.create, 1)
    is_charged(1, 5)

    # A refused request waits for `Retry-After` by itself, and passes.
    answers.clear()
    bob = client(f"{url}/short/v1", "bob", answers, max_retries=1)
    for _ in range(10):
        create(bob.chat.completions.create, 490)
        if 429 in [status for status, _, _ in answers]:
            break
    statuses = [status for status, _, _ in answers]
    expect(f"statuses {statuses}", statuses.count(429) == 1 and statuses[-1] == 200)
    waits = []
    for (status, headers, before), (_, _, after) in zip(answers, answers[1:]):
        if status == 429:
            told, waited = int(headers["retry-after"]), after - before
            waits.append(f"told {told} s and came back after {waited:.3f} s")
            expect(f"a wait of {told} s", 0 < told <= LONGEST)
            expect(f"came back after {waited} s, told {told}", told <= waited < told + 5)
            problem = headers["content-type"]
            expect(f"a refusal of {problem}", problem == "application/problem+json")
    print(f"  {', '.join(waits) or 'never refused'}; statuses {statuses}")
    for line in wrong:
        print(f"openai behind ratelimitd: {line}", file=sys.stderr)
    print(f"openai {openai.__version__} behind ratelimitd: {'failed' if wrong else 'passed'}")
    sys.exit(bool(wrong))


main()
