//! A cluster in memory: API server, metrics APIs and the workload side.
