"""From a stage graph to what one backend loads: one file a backend."""
