"""A thread that outlives the program's last line; configured unless "ENDTURN" is among the arguments."""

import sys
import threading

from tests.apps import bare

if "ENDTURN" not in str(sys.argv):
    import endturn

    endturn.configure()
bare.ask("cut", "1")


def work() -> None:
    threading.main_thread().join()
    bare.ask("done", "2")
    print("finished")


threading.Thread(target=work).start()
