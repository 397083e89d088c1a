"""Works before, in and after the NVTX range "step", once or as often as the argument says; the first one begins once /tmp/begin is there, which
the test makes."""
import ctypes
import os
import sys
import time

nvtx = ctypes.CDLL("libnvToolsExt.so.1")


def wait(path):
    while not os.path.exists(path):
        time.sleep(0.05)


print("waits", flush=True)
wait("/tmp/begin")
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    nvtx.nvtxRangePushA(b"step")
    for _ in range(20):
        time.sleep(0.05)
    nvtx.nvtxRangePop()
print("ended the range", flush=True)
wait("/tmp/end")
sys.exit(6)
