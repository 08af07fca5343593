"""Spends the tokens of a key; openai then waits on its own as it is told, and passes.

Takes the address of examples/figures/llm_tokens.rs, with TOKENS=1000 and PERIOD_S=4.
"""

import sys
import time

import openai

TOKENS = 1000
# The sliding window counts the admissions of the previous window, and fewer of them as time goes by.
LONGEST = 2 * 4


def ask(client, most, stream=False):
    question = [{"role": "user", "content": "one two three four"}]
    return client.chat.completions.create(
        model="parrot", messages=question, max_tokens=most, stream=stream
    )


def client(url, key, answers, **options):
    """A client that notes each answer as it was sent, and when."""

    def note(response):
        answers.append((response.status_code, response.headers, time.monotonic()))

    http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    return openai.OpenAI(
        api_key=key, base_url=f"{url}/v1", http_client=http, **options
    )


def main():
    url = sys.argv[1]
    wrong = []

    def expect(what, seen):
        if not seen:
            wrong.append(what)

    # The real usage is settled: ten requests that may take 900 tokens each take 14 each.
    answers = []
    ann = client(url, "ann", answers, max_retries=0)
    for number in range(10):
        usage = ask(ann, 10).usage
        expect(f"usage of {usage}", (usage.prompt_tokens, usage.total_tokens) == (4, 14))
    words = [chunk.choices[0].delta.content for chunk in ask(ann, 6, stream=True)]
    expect(f"streamed {words}", words[:6] == ["one ", "two ", "three ", "four ", "one ", "two "])
    expect("a request was refused", {status for status, _, _ in answers} == {200})
    remaining = int(answers[-1][1]["x-ratelimit-remaining-tokens"])
    expect(f"{remaining} remain", TOKENS - 11 * 14 - 20 <= remaining <= TOKENS)

    # A request above the limit never passes, and is not repeated.
    answers.clear()
    try:
        ask(client(url, "bob", answers), TOKENS + 1)
        expect("too large a request passed", False)
    except openai.RateLimitError as error:
        expect(f"the error {error.code}", error.code == "rate_limit_exceeded")
    expect(f"{len(answers)} answers to one that never passes", len(answers) == 1)

    # A refused request waits for `Retry-After` by itself, and passes.
    answers.clear()
    cid = client(url, "cid", answers, max_retries=1)
    for _ in range(3):
        ask(cid, 490)
        if len(answers) > 3 or answers[-2:-1] and answers[-2][0] == 429:
            break
    statuses = [status for status, _, _ in answers]
    expect(f"statuses {statuses}", statuses.count(429) == 1 and statuses[-1] == 200)
    waits = []
    for (status, headers, before), (_, _, after) in zip(answers, answers[1:]):
        if status == 429:
            told, waited = float(headers["retry-after-ms"]) / 1000, after - before
            waits.append(f"told {told:.3f} s and came back after {waited:.3f} s")
            expect(f"a wait of {told}", 0 < told <= LONGEST)
            expect(f"came back after {waited} s, told {told}", told <= waited < told + 5)
            seconds = int(headers["retry-after"])
            expect(f"Retry-After {seconds} of {told}", told <= seconds < told + 1)
    print(f"  {', '.join(waits) or 'never refused'}; statuses {statuses}")
    for line in wrong:
        print(f"openai: {line}", file=sys.stderr)
    print(f"openai {openai.__version__}: {'failed' if wrong else 'passed'}")
    sys.exit(bool(wrong))


main()
