"""Random schedules of faults, injected through public interfaces.

`make test` runs one round of every scenario, `make chaos` many. Each round prints the seed; set PALESTRA_CHAOS_SEED to
it to repeat a run.
"""
