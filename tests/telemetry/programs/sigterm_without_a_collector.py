"""Without a collector it is said when the process is terminated, too."""

import endturn
from tests.telemetry.programs.parts.calls import call
from tests.telemetry.programs.parts.terminate import terminate

endturn.configure()
call()
terminate()
