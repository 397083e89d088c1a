"""A rank of a training: says who it is, works for a moment and exits with its rank."""
import os
import sys
import time

rank = int(os.environ["RANK"])
os.write(1, f"rank {rank} of {os.environ['WORLD_SIZE']}\n".encode())
time.sleep(0.5)
sys.exit(rank)
