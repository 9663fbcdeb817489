"""A campaign of faults: what is asked while workers die, disks fill up, stores change and clients
cancel. See `python -m tests.faults --help`."""
