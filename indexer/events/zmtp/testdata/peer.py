"""A libzmq peer for the interoperability tests. Needs pyzmq.

usage: peer.py MODE ENDPOINT [OPTION=VALUE ...]

MODE is one of
  pub     publishes a greeting until standard input has a line, then COUNT messages of SIZE bytes and an end marker
  sub     prints "got N" after N messages in order, once the end marker came
  router  answers replay requests as engines do; FRAMING is old (no topic) or new
  dealer  asks a replay from 41 on, with the identity NAME, and prints the answers
  req     asks three questions, one after another, and prints the answers

An ENDPOINT that holds a * is bound, and printed as "bound ENDPOINT"; another is connected to. HEARTBEAT=MS makes libzmq send
PINGs and drop peers that do not answer within two seconds. IDLE=SECONDS is a silence before the last message.
"""
import struct
import sys
import threading
import time

import zmq

mode, endpoint = sys.argv[1:3]
options = dict(o.split("=", 1) for o in sys.argv[3:])
count, size = int(options.get("COUNT", 10)), int(options.get("SIZE", 16))
idle = float(options.get("IDLE", 0))
END = 2**64 - 1

context = zmq.Context()
s = context.socket({"pub": zmq.PUB, "sub": zmq.SUB, "router": zmq.ROUTER, "dealer": zmq.DEALER, "req": zmq.REQ}[mode])
s.set_hwm(0)
s.setsockopt(zmq.LINGER, 5000)
s.setsockopt(zmq.IPV6, 1)
if "HEARTBEAT" in options:
    s.setsockopt(zmq.HEARTBEAT_IVL, int(options["HEARTBEAT"]))
    s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
    s.setsockopt(zmq.HEARTBEAT_TTL, 2000)
if "NAME" in options:
    s.setsockopt(zmq.IDENTITY, options["NAME"].encode())


def say(*words):
    print(*words, flush=True)


def seq(n):
    return struct.pack(">Q", n)


if mode == "sub":
    s.setsockopt(zmq.SUBSCRIBE, b"kv")
if "*" in endpoint:
    s.bind(endpoint)
    say("bound", s.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
else:
    s.connect(endpoint)

if mode == "pub":
    go = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), go.set()), daemon=True).start()
    while not go.wait(0.01):  # a publisher cannot know whether anybody listens yet
        s.send_multipart([b"hello"])
    for i in range(count):
        s.send_multipart([b"kv-events", seq(i), bytes([i & 255]) * size])
    time.sleep(idle)
    s.send_multipart([b"kv-events", seq(END), b""])
    sys.stdin.readline()
elif mode == "sub":
    n = 0
    while True:
        topic, number, payload = s.recv_multipart()
        number = struct.unpack(">Q", number)[0]
        if number == END:
            break
        assert topic == b"kv-events" and number == n and payload == bytes([n & 255]) * len(payload), (topic, number, n)
        n += 1
    say("got", n)
elif mode == "router":
    while True:
        frames = s.recv_multipart()
        if len(frames) != 3:
            continue  # as engines do
        identity, start = frames[0], struct.unpack(">Q", frames[2])[0]
        topic = [b"kv"] if options["FRAMING"] == "new" else []
        time.sleep(idle)
        for n in range(start, start + 3):
            s.send_multipart([identity, b"", *topic, seq(n), b"payload %d" % n])
        s.send_multipart([identity, b"", *[b""] * len(topic), seq(END), b""])
elif mode == "dealer":
    s.send_multipart([b"", seq(41)])
    while True:
        frames = s.recv_multipart()
        if frames[-1] == b"":
            break
        say(len(frames), struct.unpack(">Q", frames[-2])[0], frames[-1].decode())
elif mode == "req":
    for question in (b"one", b"two", b"three"):
        s.send(question)
        say(s.recv().decode())
