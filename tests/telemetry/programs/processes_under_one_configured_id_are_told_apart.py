"""Processes under one configured id are told apart."""

import subprocess
import sys

code = "from bare import ask; import endturn; endturn.configure()\n" + "ask('done', '1')\n" * 3
workers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
sys.exit(sum(worker.wait() for worker in workers))
