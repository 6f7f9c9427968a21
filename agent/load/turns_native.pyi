from proveout.agent.load.turns_python import KindState as KindState
from proveout.agent.load.turns_python import Script as Script
from proveout.agent.load.turns_python import TerminalState as TerminalState
from proveout.agent.load.turns_python import Times as Times
from proveout.agent.load.turns_python import serve as serve
from proveout.agent.load.turns_python import turns as turns
