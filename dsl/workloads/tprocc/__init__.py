"""The TPROC-C workload."""
