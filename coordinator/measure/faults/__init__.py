"""The effect of faults on loads: detection, outage, recovery and failed transactions of each occurrence. Pure.

Data flow: `LoadSecond.bins` of each load and host -> `bin_series` -> one series of each load on each host, of each
load, and of all together; `FaultInjected` of the hosts -> `occurrences`, on the clock of the coordinator, in time after
the start of the measure window; both -> `effects` (with `recovery`) -> `measured` -> `FaultMeasured` and the numbers of
expressions. `undisturbed` is the rest of the window, by which the system is judged valid.
"""
