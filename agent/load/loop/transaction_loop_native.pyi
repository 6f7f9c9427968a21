from proveout.agent.load.loop.handling import Sampler as Sampler
from proveout.agent.load.loop.transaction_loop_python import AcknowledgedTimes as AcknowledgedTimes
from proveout.agent.load.loop.transaction_loop_python import KindState as KindState
from proveout.agent.load.loop.transaction_loop_python import Script as Script
from proveout.agent.load.loop.transaction_loop_python import TerminalState as TerminalState
from proveout.agent.load.loop.transaction_loop_python import Times as Times
from proveout.agent.load.loop.transaction_loop_python import serve as serve
from proveout.agent.load.loop.transaction_loop_python import turns as turns
