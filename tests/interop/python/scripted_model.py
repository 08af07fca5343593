"""A model by a script, in the language of OpenAI: it says the words of the question again, until it has said `max_tokens`.

It prints its address. `GET /last` answers with the last request for a chat and with what was sent for it.
"""

import http.server
import itertools
import json

last = {}


def chat(asked):
    words = asked["messages"][-1]["content"].split()
    said = list(itertools.islice(itertools.cycle(words), asked["max_tokens"]))
    usage = {
        "prompt_tokens": len(words),
        "completion_tokens": len(said),
        "total_tokens": len(words) + len(said),
    }
    return said, usage


def document(asked, kind, **members):
    return {"id": "chat-1", "object": kind, "created": 1, "model": asked["model"], **members}


def choice(finish_reason, **members):
    return {"index": 0, "finish_reason": finish_reason, **members}


def events(asked):
    said, usage = chat(asked)
    tells = (asked.get("stream_options") or {}).get("include_usage", False)
    none = {"usage": None} if tells else {}

    def chunk(**members):
        text = json.dumps(document(asked, "chat.completion.chunk", **members))
        return f"data: {text}\n\n"

    for word in said:
        yield chunk(choices=[choice(None, delta={"content": f"{word} "})], **none)
    yield chunk(choices=[choice("length", delta={})], **none)
    if tells:
        yield chunk(choices=[], usage=usage)
    yield "data: [DONE]\n\n"


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(json.dumps(last))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last.update(asked=asked, sent=None)
        if asked.get("stream"):
            self.stream("".join(events(asked)))
            return
        said, usage = chat(asked)
        message = {"role": "assistant", "content": " ".join(said)}
        choices = [choice("length", message=message)]
        self.answer(json.dumps(document(asked, "chat.completion", choices=choices, usage=usage)))

    def answer(self, text):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self, text):
        last["sent"] = text
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # In pieces that are no events.
        for begin in range(0, len(text), 61):
            piece = text[begin : begin + 61]
            self.wfile.write(f"{len(piece):x}\r\n{piece}\r\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
