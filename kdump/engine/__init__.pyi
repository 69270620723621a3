from kdump.engine.processes import Processes as Processes
from kdump.engine.protocol import Engine as Engine
from kdump.engine.protocol import Serial as Serial
