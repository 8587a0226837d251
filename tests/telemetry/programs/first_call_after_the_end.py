"""A first call after the program's last line."""

import threading

from tests.apps import bare


def work() -> None:
    threading.main_thread().join()
    bare.ask("done", "2")
    print("finished")


threading.Thread(target=work).start()
