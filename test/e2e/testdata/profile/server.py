"""Serves HTTP until SIGTERM, then ends what it does and exits with 5."""
import http.server
import signal
import sys
import threading

server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), http.server.SimpleHTTPRequestHandler)


def stop(*_):
    threading.Thread(target=server.shutdown).start()


signal.signal(signal.SIGTERM, stop)
print("serves", flush=True)
server.serve_forever()
print("ended", flush=True)
sys.exit(5)
